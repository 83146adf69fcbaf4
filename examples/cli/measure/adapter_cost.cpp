#include "measure/adapter_cost.hpp"

#include "adapters/adapter_set.hpp"
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"
#include "measure/stopwatch.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>

namespace flux2::cli {
namespace {

using SharedSet = std::shared_ptr<const AdapterSet>;

struct Candidate {
    SharedSet adapters;
    std::unique_ptr<Transformer> transformer;
    double seconds = std::numeric_limits<double>::infinity();
};

std::string line_of(const char* what, size_t n, double seconds, const std::string& rest) {
    char text[96];
    std::snprintf(text, sizeof(text), "%-12s %zu LoRA%s  %10.4f s", what, n, n == 1 ? " " : "s",
                  seconds);
    return text + rest + "\n";
}

std::string percent(double share) {
    char text[32];
    std::snprintf(text, sizeof(text), "  %+.2f %%", share * 100);
    return text;
}

}  // namespace

std::string measure_adapters(const Backend& backend, const std::filesystem::path& transformer,
                             const std::vector<Adapter>& adapters, const WeightOptions& weights,
                             const TransformerInput& input, int n_repeats) {
    const Checkpoint checkpoint = Checkpoint::open(transformer, Part::transformer);
    const TransformerSizes sizes = read_transformer_sizes(checkpoint);
    std::vector<UsedAdapter> used;
    std::vector<Candidate> candidates(1);
    for (const Adapter& adapter : adapters) {
        used.push_back(
            {std::make_shared<const AdapterFile>(AdapterFile::open(adapter.file)), adapter});
        candidates.emplace_back();
        candidates.back().adapters = std::make_shared<const AdapterSet>(
            used, Part::transformer, tensor_list(sizes), checkpoint.file());
    }
    for (Candidate& candidate : candidates) {
        WeightOptions options = weights;
        options.adapters = candidate.adapters;
        candidate.transformer = std::make_unique<Transformer>(backend, sizes, checkpoint, options);
        candidate.transformer->predict(input);  // builds the graph
    }
    for (int i = 0; i < n_repeats; ++i) {
        for (Candidate& candidate : candidates) {
            candidate.seconds = std::min(
                candidate.seconds, seconds_of([&] { candidate.transformer->predict(input); }));
        }
    }
    std::string report;
    for (size_t i = 0; i < candidates.size(); ++i) {
        report += line_of("step with", i, candidates[i].seconds,
                          percent(candidates[i].seconds / candidates[0].seconds - 1));
    }
    // From none to each set in turn; the first change moves weights where pairs are columns.
    Transformer& changed = *candidates.front().transformer;
    for (size_t i = 1; i <= 2 * candidates.size(); ++i) {
        const size_t n = i % candidates.size();
        bool possible = false;
        const double seconds =
            seconds_of([&] { possible = changed.try_set_adapters(candidates[n].adapters); });
        report += line_of("change to", n, seconds, possible ? "" : "  needs loading again");
    }
    return report;
}

}  // namespace flux2::cli
