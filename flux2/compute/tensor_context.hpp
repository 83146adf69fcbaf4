// A ggml context for tensors that get their memory elsewhere.
#pragma once

#include <ggml-cpp.h>
#include <ggml.h>

#include <cstddef>
#include <memory>

namespace flux2 {

// Holds its tensors in memory of its own: where that is lacking std::bad_alloc is thrown, while
// ggml would end the process.
class TensorContext {
  public:
    TensorContext() = default;
    explicit TensorContext(size_t n_tensors)
        : memory_(new std::byte[n_tensors * ggml_tensor_overhead()]),
          context_(ggml_init({.mem_size = n_tensors * ggml_tensor_overhead(),
                              .mem_buffer = memory_.get(),
                              .no_alloc = true})) {}

    ggml_context* get() const { return context_.get(); }

  private:
    std::unique_ptr<std::byte[]> memory_;
    ggml_context_ptr context_;
};

}  // namespace flux2
