#include "compute/graph.hpp"

#include "base/check.hpp"

#include <algorithm>

namespace flux2 {

Graph::Graph(const Backend& backend, size_t max_nodes, bool keep_taps)
    : backend_(backend),
      context_(ggml_init({.mem_size = max_nodes * ggml_tensor_overhead() +
                                      ggml_graph_overhead_custom(max_nodes, false),
                          .mem_buffer = nullptr,
                          .no_alloc = true})),
      graph_(ggml_new_graph_custom(context_.get(), max_nodes, false)),
      scheduler_(backend.make_scheduler(max_nodes)),
      keep_taps_(keep_taps) {}

ggml_tensor* Graph::input_f32(const std::string& name, std::initializer_list<int64_t> shape) {
    ggml_tensor* tensor = ggml_new_tensor(context_.get(), GGML_TYPE_F32,
                                          static_cast<int>(shape.size()), shape.begin());
    ggml_set_name(tensor, name.c_str());
    ggml_set_input(tensor);
    // As an output its memory is not given to others after its last use.
    ggml_set_output(tensor);
    return tensor;
}

ggml_tensor* Graph::input_i32(const std::string& name, std::initializer_list<int64_t> shape) {
    ggml_tensor* tensor = input_f32(name, shape);
    tensor->type = GGML_TYPE_I32;  // of the same size as F32
    return tensor;
}

void Graph::expand(ggml_tensor* tensor) {
    ggml_build_forward_expand(graph_, tensor);
}

ggml_tensor* Graph::tap(const std::string& name, ggml_tensor* tensor) {
    ggml_set_name(tensor, name.c_str());
    if (keep_taps_) {
        ggml_set_output(tensor);
        taps_.emplace_back(name, tensor);
        expand(tensor);
    }
    return tensor;
}

void Graph::finish(ggml_tensor* output) {
    ggml_set_output(output);
    expand(output);
    check(ggml_backend_sched_alloc_graph(scheduler_.get(), graph_), ErrorKind::out_of_memory,
          "the computation does not fit into the memory of ", backend_.name(),
          "; make a smaller picture or use another --device");
}

void Graph::set(ggml_tensor* input, std::span<const float> values) {
    check(ggml_nbytes(input) == values.size_bytes(), ErrorKind::internal, "input ", input->name,
          " takes ", ggml_nelements(input), " values, not ", values.size());
    ggml_backend_tensor_set(input, values.data(), 0, values.size_bytes());
}

void Graph::set(ggml_tensor* input, std::span<const int32_t> values) {
    check(ggml_nbytes(input) == values.size_bytes(), ErrorKind::internal, "input ", input->name,
          " takes ", ggml_nelements(input), " values, not ", values.size());
    ggml_backend_tensor_set(input, values.data(), 0, values.size_bytes());
}

void Graph::compute() {
    const ggml_status status = ggml_backend_sched_graph_compute(scheduler_.get(), graph_);
    check(status == GGML_STATUS_SUCCESS, ErrorKind::backend, "the computation failed on ",
          backend_.name(), ": ", ggml_status_to_string(status));
}

HostTensor Graph::read(const ggml_tensor* tensor) const {
    check(tensor->type == GGML_TYPE_F32 && ggml_is_contiguous(tensor), ErrorKind::internal,
          "tensor ", tensor->name, " cannot be read back");
    HostTensor result({tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]});
    ggml_backend_tensor_get(tensor, result.data.data(), 0, ggml_nbytes(tensor));
    return result;
}

Taps Graph::read_taps() const {
    Taps taps;
    for (const auto& [name, tensor] : taps_) {
        taps[name] = read(tensor);
    }
    return taps;
}

std::vector<const ggml_tensor*> Graph::nodes() const {
    std::vector<const ggml_tensor*> result;
    for (int i = 0; i < ggml_graph_n_nodes(graph_); ++i) {
        result.push_back(ggml_graph_node(graph_, i));
    }
    return result;
}

uint64_t Graph::buffer_bytes() const {
    uint64_t bytes = 0;
    for (int i = 0; i < ggml_backend_sched_get_n_backends(scheduler_.get()); ++i) {
        bytes += ggml_backend_sched_get_buffer_size(
            scheduler_.get(), ggml_backend_sched_get_backend(scheduler_.get(), i));
    }
    return bytes;
}

}  // namespace flux2
