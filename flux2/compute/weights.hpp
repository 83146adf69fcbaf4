// The tensors of one model on a device: first declared by name and shape and checked against the
// file, then loaded in one go. Nothing of a graph exists before every shape is known to be right.
#pragma once

#include "compute/backend.hpp"
#include "store/checkpoint.hpp"

#include <ggml-cpp.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

struct WeightOptions {
    // The type of matrices in memory; unset: as the file has them. F8 and F64 become BF16 and F32.
    std::optional<TensorType> type;
};

// Tensors are borrowed from here; they have data once load() returned. The checkpoint must live as
// long, since weights that need no conversion stay in its mapped files.
class Weights {
  public:
    Weights(const Backend& backend, const Checkpoint& checkpoint, const WeightOptions& options);

    // Declares a tensor and checks its shape. Throws bad_file naming file and tensor.
    ggml_tensor* matrix(const std::string& name, std::initializer_list<int64_t> shape);
    // A vector or convolution kernel bias, norm, statistics: always F32.
    ggml_tensor* vector(const std::string& name, int64_t n);
    // [kw, kh, in, out]; F16 unless the file or the options say F32.
    ggml_tensor* kernel(const std::string& name, std::initializer_list<int64_t> shape);

    // Allocates and fills everything declared. Throws out_of_memory.
    void load();

    // Bytes taken on the device, mapped ones not counted.
    uint64_t allocated_bytes() const;

  private:
    struct Bound {
        ggml_tensor* tensor;
        const ModelTensor* source;
    };

    ggml_tensor* declare(const std::string& name, std::initializer_list<int64_t> shape,
                         TensorType type);
    bool try_map(const Bound& bound);
    void upload(const Bound& bound) const;

    const Backend& backend_;
    const Checkpoint& checkpoint_;
    WeightOptions options_;
    std::vector<Bound> bound_;
    ggml_context_ptr context_;
    std::vector<ggml_backend_buffer_ptr> mapped_;  // one per file of the checkpoint
    ggml_backend_buffer_ptr buffer_;
};

}  // namespace flux2
