// Converts tensors in chunks on all cores directly into the file, and verifies them.
#pragma once

#include "adapters/adapter_set.hpp"
#include "checkpoints/checkpoint.hpp"
#include "formats/gguf_writer.hpp"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace flux2::convert {

struct PlannedTensor {
    const ModelTensor* source = nullptr;
    GgufTensor target;
    // Relative error of the output, if the type was chosen by it.
    std::optional<double> error = std::nullopt;
};

// Throws bad_file for values that are no finite numbers or that the target type cannot hold. `file`
// and `first`, the index of the first value if the values are contiguous in the tensor, are for the
// message.
void check_range(const PlannedTensor& tensor, std::span<const float> values,
                 const std::string& file, std::optional<int64_t> first = std::nullopt);

struct WorkOptions {
    int n_threads = 1;
    const std::atomic<bool>* cancel = nullptr;
    std::string source_file;               // for errors
    const AdapterSet* adapters = nullptr;  // change the source's values first; may be null
    // Called with the source bytes done so far, after each chunk of the calling thread.
    std::function<void(uint64_t bytes)> progress;
};

// Bytes of all sources, the measure of progress.
uint64_t source_bytes(const std::vector<PlannedTensor>& tensors);

// Fills every tensor of the writer; `tensors` are in the writer's order. Apart from the mapped
// files it needs a few megabytes per thread, and room for the largest tensor that adapters change,
// in F32. Throws bad_file for values that are not finite or that the target type cannot hold.
void write_tensors(GgufWriter& writer, const std::vector<PlannedTensor>& tensors,
                   const WorkOptions& options);

// How far the values of one type in a written file are from their source.
struct TypeError {
    TensorType type = TensorType::f32;
    int n_tensors = 0;
    double relative_error = 0;  // root mean square of the difference over that of the source
    bool within_limit = false;
    std::string worst_tensor;
    double worst_error = 0;
};

// Reads `file` back and compares every value with its source, changed by the adapters. Sorted by
// type name.
std::vector<TypeError> verify_tensors(const std::filesystem::path& file,
                                      const std::vector<PlannedTensor>& tensors,
                                      const WorkOptions& options);

// The largest relative error that a correct file can have for this type.
double error_limit(TensorType type);

}  // namespace flux2::convert
