#include "type_search.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <cmath>

namespace flux2::convert {
namespace {

double square(double x) {
    return x * x;
}

// Reduction of the squared error per added byte.
double gain_per_byte(const Candidate& from, const Candidate& to) {
    return (square(from.error) - square(to.error)) / static_cast<double>(to.bytes - from.bytes);
}

struct Step {
    size_t matrix;
    size_t to;  // candidate
    uint64_t bytes;
    double gain;  // per byte
};

// The steps of one matrix from its smallest candidate upwards. Each goes to the candidate with the
// largest gain per byte, so gains decrease from step to step, and candidates that are larger
// without being better are skipped.
void add_steps(std::vector<Step>& steps, size_t number, const MeasuredMatrix& matrix) {
    const std::vector<Candidate>& candidates = matrix.candidates;
    for (size_t from = 0;;) {
        size_t best = from;
        double gain = 0;
        for (size_t to = from + 1; to < candidates.size(); ++to) {
            const double other = matrix.weight * gain_per_byte(candidates[from], candidates[to]);
            if (other > gain) {
                best = to;
                gain = other;
            }
        }
        if (best == from) {
            return;
        }
        steps.push_back({number, best, candidates[best].bytes - candidates[from].bytes, gain});
        from = best;
    }
}

}  // namespace

Selection search_by_error(const std::vector<MeasuredMatrix>& matrices, double max_error) {
    Selection selection;
    const MeasuredMatrix* worst = nullptr;
    double least_possible = 0;
    for (const MeasuredMatrix& matrix : matrices) {
        const auto& candidates = matrix.candidates;
        const auto found = std::find_if(candidates.begin(), candidates.end(),
                                        [&](const Candidate& c) { return c.error <= max_error; });
        selection.push_back(static_cast<size_t>(found - candidates.begin()));
        const auto best = std::min_element(
            candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.error < b.error; });
        if (found == candidates.end() && best->error > least_possible) {
            worst = &matrix;
            least_possible = best->error;
        }
    }
    if (worst != nullptr) {
        fail(ErrorKind::bad_argument, "no block type keeps ", worst->name, " within an error of ",
             max_error, "; the best has ", least_possible,
             ". Give a larger --max-error, or keep that tensor with --tensor-type '", worst->name,
             "=BF16'");
    }
    return selection;
}

Selection search_by_size(const std::vector<MeasuredMatrix>& matrices, uint64_t bytes) {
    const uint64_t least = least_bytes(matrices);
    check(bytes >= least, ErrorKind::internal, "room for ", bytes, " bytes, the least is ", least);
    uint64_t room = bytes - least;
    std::vector<Step> steps;
    for (size_t i = 0; i < matrices.size(); ++i) {
        add_steps(steps, i, matrices[i]);
    }
    // Stable: the steps of one matrix stay in their order.
    std::stable_sort(steps.begin(), steps.end(),
                     [](const Step& a, const Step& b) { return a.gain > b.gain; });
    Selection selection(matrices.size(), 0);
    std::vector<bool> ended(matrices.size(), false);
    for (const Step& step : steps) {
        if (step.bytes > room) {
            ended[step.matrix] = true;
        }
        if (!ended[step.matrix]) {
            selection[step.matrix] = step.to;
            room -= step.bytes;
        }
    }
    return selection;
}

uint64_t least_bytes(const std::vector<MeasuredMatrix>& matrices) {
    uint64_t bytes = 0;
    for (const MeasuredMatrix& matrix : matrices) {
        bytes += matrix.candidates.front().bytes;
    }
    return bytes;
}

double mean_error(const std::vector<MeasuredMatrix>& matrices, const Selection& selection) {
    double sum = 0;
    double weights = 0;
    for (size_t i = 0; i < matrices.size(); ++i) {
        sum += matrices[i].weight * square(matrices[i].candidates[selection[i]].error);
        weights += matrices[i].weight;
    }
    return std::sqrt(sum / weights);
}

}  // namespace flux2::convert
