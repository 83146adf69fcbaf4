#include "measured_types.hpp"

#include "base/check.hpp"
#include "base/parallel.hpp"
#include "merge.hpp"
#include "output_error.hpp"
#include "type_search.hpp"

#include <algorithm>
#include <iomanip>
#include <map>
#include <mutex>
#include <utility>

namespace flux2::convert {
namespace {

// Rows of the tensor as it will be stored. A tensor that adapters change is in memory as a whole
// meanwhile, so only one is at a time.
std::vector<float> rows_of(const ConversionPlan& plan, const PlannedTensor& tensor,
                           std::mutex& one_at_a_time) {
    if (!plan.adapters.changes(tensor.target.name)) {
        return sample_rows(*tensor.source);
    }
    const std::lock_guard lock(one_at_a_time);
    return sample_rows(MergedTensor(*tensor.source, plan.adapters).tensor());
}

// Measures every candidate type of the tensors with these indices.
std::vector<MeasuredMatrix> measure(const ConversionPlan& plan, const std::vector<size_t>& open,
                                    const ConvertOptions& options) {
    std::vector<MeasuredMatrix> matrices(open.size());
    std::mutex one_at_a_time;
    parallel_for(open.size(), options.n_threads, [&](size_t i, size_t) {
        if (options.cancel != nullptr && *options.cancel) {
            fail(ErrorKind::cancelled, "cancelled; nothing was written");
        }
        const PlannedTensor& tensor = plan.tensors[open[i]];
        const Shape& shape = tensor.target.shape;
        const std::vector<float> rows = rows_of(plan, tensor, one_at_a_time);
        check_range(tensor, rows, plan.checkpoint->file());
        const std::vector<float> inputs = typical_inputs(tensor.target.name, shape);
        matrices[i].name = tensor.target.name;
        // Weighted by the number of parameters: the gain per byte then depends on a matrix's error
        // alone, not on its size, and matrices with equal errors get the same type.
        matrices[i].weight = static_cast<double>(shape.elements());
        for (const TensorType type : candidate_types(shape.ne[0])) {
            const GgufLayout alone = lay_out_gguf({}, {{tensor.target.name, type, shape}});
            matrices[i].candidates.push_back({type, alone.file_bytes - alone.header.size(),
                                              output_error(type, rows, shape.ne[0], inputs)});
        }
    });
    return matrices;
}

// "types by measured error: 14 Q4_K, 6 Q5_K, mean output error 0.068"
std::string describe(const std::map<TensorType, int>& counts, double error) {
    std::string text = "types by measured error: ";
    for (const auto& [type, n] : counts) {
        text += concat(n, " ", type_name(type), ", ");
    }
    return concat(text, "mean output error ", std::setprecision(3), error);
}

// Writes the selected types to the plan and its metadata.
void apply(ConversionPlan& plan, const std::vector<size_t>& open,
           const std::vector<MeasuredMatrix>& matrices, const Selection& selection) {
    std::map<TensorType, int> counts;
    std::map<TensorType, int64_t> elements;
    for (size_t i = 0; i < open.size(); ++i) {
        PlannedTensor& tensor = plan.tensors[open[i]];
        const Candidate& chosen = matrices[i].candidates[selection[i]];
        tensor.target.type = chosen.type;
        tensor.error = chosen.error;
        ++counts[chosen.type];
        elements[chosen.type] += tensor.target.shape.elements();
    }
    const auto most = std::max_element(elements.begin(), elements.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    const double error = mean_error(matrices, selection);
    plan.metadata.set("general.file_type", plain_file_type(most->first).number);
    plan.metadata.set(kQuantizationErrorKey, static_cast<float>(error));
    plan.type_summary = describe(counts, error);
}

// The bytes left for the matrices in a file of the wanted size. Throws bad_argument when they do
// not fit.
uint64_t room_for(const ConversionPlan& plan, const std::vector<size_t>& open,
                  const std::vector<MeasuredMatrix>& matrices, uint64_t target_bytes) {
    std::vector<GgufTensor> smallest = plan.targets();
    for (size_t i = 0; i < open.size(); ++i) {
        smallest[open[i]].type = matrices[i].candidates.front().type;
    }
    const uint64_t least = lay_out_gguf(plan.metadata, smallest).file_bytes;
    check(target_bytes >= least, ErrorKind::bad_argument, plan.checkpoint->file(),
          ": cannot be made as small as ", target_bytes,
          " bytes; with the smallest types it takes ", least, ". Give --target-size ", least,
          " or more");
    return target_bytes - least + least_bytes(matrices);
}

}  // namespace

void choose_by_error(ConversionPlan& plan, const std::vector<size_t>& open,
                     const ConvertOptions& options) {
    const TypeRequest& types = options.types;
    if (open.empty()) {
        if (types.target_bytes) {
            room_for(plan, open, {}, *types.target_bytes);
        }
        plan.warnings.push_back(concat(plan.checkpoint->file(),
                                       ": has no matrices that can be stored in blocks, so its "
                                       "types do not depend on errors"));
        return;
    }
    const std::vector<MeasuredMatrix> matrices = measure(plan, open, options);
    // Set before sizes are counted.
    plan.metadata.set(kQuantizationMethodKey,
                      std::string(types.target_bytes ? "target-size" : "max-error"));
    plan.metadata.set(kQuantizationErrorKey, 0.0f);
    apply(plan, open, matrices,
          types.target_bytes
              ? search_by_size(matrices, room_for(plan, open, matrices, *types.target_bytes))
              : search_by_error(matrices, *types.max_error));
}

}  // namespace flux2::convert
