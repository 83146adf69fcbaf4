// One ggml graph of fixed shapes: built once, then fed and computed as often as wanted.
#pragma once

#include "base/host_tensor.hpp"
#include "compute/backend.hpp"
#include "compute/low_rank.hpp"
#include "compute/shared_work.hpp"

#include <ggml-cpp.h>
#include <ggml.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {

// Named results that a caller wants to see beside the output, for comparison with a reference.
using Taps = std::map<std::string, HostTensor>;

// Where the operations of a graph run, and what crosses between device and CPU.
struct GraphPlacement {
    size_t n_operations = 0;
    std::map<std::string, size_t> on_cpu;   // how many of each kind; empty when the device is a CPU
    std::map<std::string, size_t> lacking;  // those of them that the device cannot compute
    size_t n_copies = 0;                    // of tensors, at each computation
    uint64_t copied_bytes = 0;
};

// What a graph is made of.
struct Form {
    Operations operations = Operations::stock;
    ggml_type activations = GGML_TYPE_F32;  // of what matrices are multiplied with
    bool exact = true;  // matrices are F32, so attention must not be coarser either
    // Before many tokens are multiplied with a quantised matrix, it is unpacked to BF16.
    bool unpacks = false;
    // Values after each row of activations, for the products of pairs of low rank that are columns
    // of their matrices.
    int64_t spare_columns = 0;
    // Large feature maps are computed some rows at a time (compute/ops/banded_map), so many values
    // in a band; 0: none are.
    int64_t band_values = 0;
    bool half_bands = false;  // such maps are kept in F16 on NVIDIA GPUs
};

// Converts to ggml_context*, so that ggml's ops and ours share their first argument.
class Graph {
  public:
    // `keep_taps`: tensors passed to tap() stay readable after compute(). Throws std::bad_alloc.
    Graph(const Backend& backend, size_t max_nodes, const Form& form = {}, bool keep_taps = false);

    operator ggml_context*() const { return context_.get(); }

    const Form& form() const { return form_; }
    bool keeps_taps() const { return keep_taps_; }

    // Pairs that linear() adds to its products; borrowed. To be called before anything is built.
    void set_low_rank(const LowRankTable* table) { low_rank_ = table; }
    // Of a matrix; null when it has none.
    const LowRankTensors* low_rank_of(const ggml_tensor* matrix) const;

    // What `make` makes of a weight, made once however often it is asked for.
    ggml_tensor* made_once(const ggml_tensor* weight, const std::function<ggml_tensor*()>& make);

    // Tensors to be set before compute(); their values stay until they are set again.
    ggml_tensor* input_f32(const std::string& name, std::initializer_list<int64_t> shape);
    ggml_tensor* input_i32(const std::string& name, std::initializer_list<int64_t> shape);
    // A vector that holds these values from finish() on.
    ggml_tensor* constant(const std::string& name, std::vector<float> values);

    // Computes the tensor after everything expanded before it: an order, and a way to
    // keep results that nothing else asks for.
    void expand(ggml_tensor* tensor);

    // Ends a block: everything up to these results is computed before anything after them. Blocks
    // are where a computation can be cancelled, reports its progress and fetches weights.
    void end_block(std::initializer_list<ggml_tensor*> results);
    // Called before block i is computed; its weights must be in place afterwards.
    void set_before_block(std::function<void(size_t i)> before_block);

    // Marks a tensor worth comparing: when taps are wanted, it gets the name and is kept for
    // read_taps(). Returns it.
    ggml_tensor* tap(const std::string& name, ggml_tensor* tensor);

    // A result that set_from() of another graph takes, beside the output: in F32, without gaps.
    ggml_tensor* keep(ggml_tensor* tensor);
    // This graph is one of several that are computed in turn: the blocks of all count in what the
    // backend is told about progress.
    void set_progress(const Backend& told, size_t n_blocks_before, size_t n_blocks);

    // Ends building: `output` is what read(output) will give. Throws out_of_memory.
    void finish(ggml_tensor* output);

    void set(ggml_tensor* input, std::span<const float> values);
    void set(ggml_tensor* input, std::span<const int32_t> values);
    // The same, and read(), which may still be copying when they return; `values` must live until
    // wait(), which ends all of them.
    void begin_set(ggml_tensor* input, std::span<const float> values);
    void begin_read(const ggml_tensor* tensor, std::span<float> values) const;
    void wait() const;
    // Sets an input to what keep() of another graph returned there.
    void set_from(ggml_tensor* input, const Graph& other, ggml_tensor* result);
    // Throws backend when the device fails, out_of_memory when a node of ours finds no room for
    // what it works with, cancelled when the backend's flag says so.
    void compute();
    HostTensor read(const ggml_tensor* tensor) const;
    Taps read_taps() const;

    // Compute buffers and, on the CPU, the work space of operations.
    MemoryUse memory() const { return memory_; }
    // From finish() on, unless it was only measured.
    const GraphPlacement& placement() const { return placement_; }
    std::vector<const ggml_tensor*> nodes() const;

    // Of the node of ours (compute/plain/own_node) that is being computed; stays where it is when
    // the graph is moved.
    SharedWork& shared_work() { return *shared_work_; }

  private:
    MemoryUse allocated() const;
    void allocate();
    void log_lacking() const;
    static bool on_node(ggml_tensor* node, bool ask, void* graph);
    bool pauses_after(const ggml_tensor* node) const;
    bool pause();
    ggml_status run();
    void wait_for(const ggml_tensor& node) const;
    bool tell_operation(const ggml_tensor& node);
    void tell_progress(size_t n_passed) const;

    const Backend& backend_;
    Form form_;
    const LowRankTable* low_rank_ = nullptr;
    std::map<const ggml_tensor*, ggml_tensor*> made_of_;  // of weights
    std::unique_ptr<std::byte[]> context_memory_;  // of our own: ggml aborts when there is none
    ggml_context_ptr context_;
    ggml_cgraph* graph_;  // lies in the context
    ggml_backend_sched_ptr scheduler_;
    std::vector<std::pair<std::string, ggml_tensor*>> taps_;
    bool keep_taps_;
    std::vector<std::pair<ggml_tensor*, std::vector<float>>> constants_;  // until finish()
    std::vector<const ggml_tensor*> block_ends_;  // in the order of the graph
    size_t n_blocks_passed_ = 0;                  // whose nodes were handed out
    size_t blocks_per_pause_ = 1;  // a pause costs a device the time to empty its queue
    std::chrono::steady_clock::time_point operation_start_;
    std::function<void(size_t)> before_block_;
    const Backend* told_;  // about progress
    size_t n_blocks_before_ = 0;
    size_t n_blocks_in_all_ = 0;  // 0: those of this graph
    std::exception_ptr thrown_;   // in a callback, where ggml's frames lie between
    std::unique_ptr<SharedWork> shared_work_ = std::make_unique<SharedWork>();
    MemoryUse memory_;
    GraphPlacement placement_;
};

}  // namespace flux2
