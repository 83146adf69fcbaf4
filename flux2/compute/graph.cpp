#include "compute/graph.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "compute/graph_work.hpp"
#include "compute/plain/own_node.hpp"

#include <ggml-cpu.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <set>
#include <utility>

namespace flux2 {
namespace {

// Of a graph with its tensors.
size_t context_bytes(size_t max_nodes) {
    return max_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false);
}

}  // namespace

Graph::Graph(const Backend& backend, size_t max_nodes, const Form& form, bool keep_taps)
    : backend_(backend),
      form_(form),
      context_memory_(new std::byte[context_bytes(max_nodes)]),
      context_(ggml_init({.mem_size = context_bytes(max_nodes),
                          .mem_buffer = context_memory_.get(),
                          .no_alloc = true})),
      graph_(ggml_new_graph_custom(context_.get(), max_nodes, false)),
      scheduler_(backend.make_scheduler(max_nodes)),
      keep_taps_(keep_taps),
      told_(&backend) {}

const LowRankTensors* Graph::low_rank_of(const ggml_tensor* matrix) const {
    if (low_rank_ == nullptr) {
        return nullptr;
    }
    const auto found = low_rank_->find(matrix);
    return found == low_rank_->end() ? nullptr : &found->second;
}

ggml_tensor* Graph::made_once(const ggml_tensor* weight,
                              const std::function<ggml_tensor*()>& make) {
    ggml_tensor*& made = made_of_[weight];
    if (made == nullptr) {
        made = make();
    }
    return made;
}

ggml_tensor* Graph::input_f32(const std::string& name, std::initializer_list<int64_t> shape) {
    ggml_tensor* tensor = ggml_new_tensor(context_.get(), GGML_TYPE_F32,
                                          static_cast<int>(shape.size()), shape.begin());
    ggml_set_name(tensor, name.c_str());
    ggml_set_input(tensor);
    // As an output its memory is not given to others after its last use.
    ggml_set_output(tensor);
    // Left to itself the scheduler keeps inputs on the host and copies them at each computation.
    const bool on_device = backend_.memory_for(tensor) == backend_.buffer_type();
    const int cpu = ggml_backend_sched_get_n_backends(scheduler_.get()) - 1;
    ggml_backend_sched_set_tensor_backend(
        scheduler_.get(), tensor,
        ggml_backend_sched_get_backend(scheduler_.get(), on_device ? 0 : cpu));
    return tensor;
}

ggml_tensor* Graph::input_i32(const std::string& name, std::initializer_list<int64_t> shape) {
    ggml_tensor* tensor = input_f32(name, shape);
    tensor->type = GGML_TYPE_I32;  // of the same size as F32
    return tensor;
}

ggml_tensor* Graph::constant(const std::string& name, std::vector<float> values) {
    ggml_tensor* tensor = input_f32(name, {static_cast<int64_t>(values.size())});
    constants_.emplace_back(tensor, std::move(values));
    return tensor;
}

void Graph::expand(ggml_tensor* tensor) {
    ggml_build_forward_expand(graph_, tensor);
}

void Graph::end_block(std::initializer_list<ggml_tensor*> results) {
    for (ggml_tensor* result : results) {
        expand(result);
    }
    block_ends_.push_back(*(results.end() - 1));
}

void Graph::set_before_block(std::function<void(size_t i)> before_block) {
    before_block_ = std::move(before_block);
}

ggml_tensor* Graph::tap(const std::string& name, ggml_tensor* tensor) {
    if (keep_taps_) {
        ggml_set_name(tensor, name.c_str());
        ggml_set_output(tensor);
        taps_.emplace_back(name, tensor);
        expand(tensor);
    }
    return tensor;
}

ggml_tensor* Graph::keep(ggml_tensor* tensor) {
    if (tensor->type != GGML_TYPE_F32) {
        tensor = ggml_cast(context_.get(), tensor, GGML_TYPE_F32);
    } else if (!ggml_is_contiguous(tensor) || tensor->view_src != nullptr) {
        tensor = ggml_cont(context_.get(), tensor);
    }
    ggml_set_output(tensor);
    expand(tensor);
    return tensor;
}

void Graph::set_progress(const Backend& told, size_t n_blocks_before, size_t n_blocks) {
    told_ = &told;
    n_blocks_before_ = n_blocks_before;
    n_blocks_in_all_ = n_blocks;
}

void Graph::tell_progress(size_t n_passed) const {
    if (told_->on_progress()) {
        const size_t all = n_blocks_in_all_ > 0 ? n_blocks_in_all_ : block_ends_.size();
        told_->on_progress()(static_cast<double>(n_blocks_before_ + n_passed) /
                             static_cast<double>(all));
    }
}

void Graph::finish(ggml_tensor* output) {
    ggml_set_output(output);
    expand(output);
    if (backend_.measures_only()) {
        std::vector<size_t> sizes(
            static_cast<size_t>(ggml_backend_sched_get_n_backends(scheduler_.get())));
        ggml_backend_sched_reserve_size(scheduler_.get(), graph_, sizes.data());
        memory_.host = sizes.back();  // the CPU comes last
        memory_.device = backend_.is_cpu() ? 0 : sizes.front();
    } else {
        allocate();
        memory_ = allocated();
        for (const auto& [tensor, values] : constants_) {
            set(tensor, values);
        }
    }
    constants_.clear();
    if (backend_.is_cpu()) {
        memory_.host += ggml_graph_plan(graph_, backend_.n_threads(), nullptr).work_size;
    }
}

// Gives every node a place. Notes what the device lacks, and which sources the scheduler replaced
// by copies of them.
void Graph::allocate() {
    const ggml_backend_t device = ggml_backend_sched_get_backend(scheduler_.get(), 0);
    std::set<const ggml_tensor*> sources;
    for (const ggml_tensor* node : nodes()) {
        sources.insert(std::begin(node->src), std::end(node->src));
        if (!backend_.is_cpu() && computes(*node) && !ggml_backend_supports_op(device, node)) {
            ++placement_.lacking[operation_name(node)];
        }
    }
    const bool has_room = ggml_backend_sched_alloc_graph(scheduler_.get(), graph_);
    backend_.check_alive();
    check(has_room, ErrorKind::out_of_memory, "the computation does not fit into the memory of ",
          backend_.name(), "; make a smaller picture or use another ", Setting::device);
    std::set<const ggml_tensor*> copies;
    for (const ggml_tensor* node : nodes()) {
        if (!computes(*node)) {
            continue;
        }
        ++placement_.n_operations;
        if (ggml_backend_sched_get_tensor_backend(scheduler_.get(),
                                                  const_cast<ggml_tensor*>(node)) != device) {
            ++placement_.on_cpu[operation_name(node)];
        }
        for (const ggml_tensor* source : node->src) {
            if (!sources.contains(source) && copies.insert(source).second) {
                placement_.copied_bytes += ggml_nbytes(source);
            }
        }
    }
    placement_.n_copies = copies.size();
    log_lacking();
}

void Graph::log_lacking() const {
    size_t n = 0;
    std::string kinds;
    for (const auto& [kind, count] : placement_.lacking) {
        n += count;
        kinds += concat(kinds.empty() ? "" : ", ", kind, " x ", count);
    }
    if (n > 0) {
        log(LogLevel::warning,
            concat(backend_.name(), " cannot compute ", n, " of ", placement_.n_operations,
                   " operations of this size or type (", kinds, "): they run on the CPU, with ",
                   placement_.n_copies, " tensors, ", placement_.copied_bytes / 1000,
                   " kB, copied each time"));
    }
}

MemoryUse Graph::allocated() const {
    const auto bytes_of = [&](int i) {
        return ggml_backend_sched_get_buffer_size(
            scheduler_.get(), ggml_backend_sched_get_backend(scheduler_.get(), i));
    };
    const int last = ggml_backend_sched_get_n_backends(scheduler_.get()) - 1;
    return {.device = last == 0 ? 0 : bytes_of(0), .host = bytes_of(last)};
}

void Graph::set(ggml_tensor* input, std::span<const float> values) {
    check(ggml_nbytes(input) == values.size_bytes(), ErrorKind::internal, "input ", input->name,
          " takes ", ggml_nelements(input), " values, not ", values.size());
    ggml_backend_tensor_set(input, values.data(), 0, values.size_bytes());
    backend_.traffic().sent += values.size_bytes();
    backend_.check_alive();
}

void Graph::set(ggml_tensor* input, std::span<const int32_t> values) {
    check(ggml_nbytes(input) == values.size_bytes(), ErrorKind::internal, "input ", input->name,
          " takes ", ggml_nelements(input), " values, not ", values.size());
    ggml_backend_tensor_set(input, values.data(), 0, values.size_bytes());
    backend_.traffic().sent += values.size_bytes();
    backend_.check_alive();
}

void Graph::begin_set(ggml_tensor* input, std::span<const float> values) {
    check(ggml_nbytes(input) == values.size_bytes(), ErrorKind::internal, "input ", input->name,
          " takes ", ggml_nelements(input), " values, not ", values.size());
    ggml_backend_tensor_set_async(ggml_backend_sched_get_tensor_backend(scheduler_.get(), input),
                                  input, values.data(), 0, values.size_bytes());
    backend_.traffic().sent += values.size_bytes();
}

void Graph::begin_read(const ggml_tensor* tensor, std::span<float> values) const {
    check(tensor->type == GGML_TYPE_F32 && ggml_is_contiguous(tensor) &&
              ggml_nbytes(tensor) == values.size_bytes(),
          ErrorKind::internal, "tensor ", tensor->name, " cannot be read back");
    ggml_backend_tensor_get_async(
        ggml_backend_sched_get_tensor_backend(scheduler_.get(), const_cast<ggml_tensor*>(tensor)),
        tensor, values.data(), 0, values.size_bytes());
    backend_.traffic().received += values.size_bytes();
}

void Graph::wait() const {
    ggml_backend_sched_synchronize(scheduler_.get());
    backend_.check_alive();
}

void Graph::set_from(ggml_tensor* input, const Graph& other, ggml_tensor* result) {
    check(ggml_nbytes(input) == ggml_nbytes(result), ErrorKind::internal, "input ", input->name,
          " and ", result->name, " differ in size");
    ggml_backend_tensor_copy(result, input);
    other.backend_.traffic().received += ggml_nbytes(result);
    backend_.traffic().sent += ggml_nbytes(input);
    other.backend_.check_alive();
    backend_.check_alive();
}

void Graph::compute() {
    check(!backend_.measures_only(), ErrorKind::internal, "a measured graph cannot be computed");
    n_blocks_passed_ = 0;
    thrown_ = nullptr;
    shared_work_->lacks_memory = false;
    const bool is_far = backend_.device().abilities().is_far;
    const auto start = std::chrono::steady_clock::now();
    const bool pauses = !block_ends_.empty() && (before_block_ || !is_far);
    const bool looks_at_nodes = pauses || backend_.on_operation();
    ggml_backend_sched_set_eval_callback(scheduler_.get(), looks_at_nodes ? on_node : nullptr,
                                         this);
    if (before_block_) {
        before_block_(0);
    }
    const ggml_status status = run();
    wait_for(*ggml_graph_node(graph_, -1));
    if (thrown_) {
        std::rethrow_exception(thrown_);
    }
    check(!backend_.cancel_requested(), ErrorKind::cancelled, "cancelled");
    backend_.check_alive();
    check(!shared_work_->lacks_memory, ErrorKind::out_of_memory,
          "the computation found no more RAM to work in; close other programs, or make a smaller "
          "picture");
    check(status != GGML_STATUS_ALLOC_FAILED, ErrorKind::out_of_memory, backend_.name(),
          " has no memory left for the computation; close other programs that use it, or make a "
          "smaller picture");
    check(status == GGML_STATUS_SUCCESS, ErrorKind::backend, "the computation failed on ",
          backend_.name(), ": ", ggml_status_to_string(status));
    if (!looks_at_nodes && !block_ends_.empty()) {
        tell_progress(block_ends_.size());
    }
    if (!backend_.is_cpu() && !block_ends_.empty()) {
        constexpr double kSecondsToPause = 0.1;
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        const double per_block = seconds / static_cast<double>(block_ends_.size());
        blocks_per_pause_ = static_cast<size_t>(
            std::clamp(kSecondsToPause / per_block, 1.0, static_cast<double>(block_ends_.size())));
    }
}

// ggml's memory pools of GPUs throw where an allocation fails (ggml/package.cmake).
ggml_status Graph::run() {
    try {
        return ggml_backend_sched_graph_compute(scheduler_.get(), graph_);
    } catch (const std::bad_alloc&) {
        ggml_backend_sched_synchronize(scheduler_.get());
        return GGML_STATUS_ALLOC_FAILED;
    }
}

// A device of another machine only takes a graph when ggml has it computed: a value of a result is
// there when it is finished.
void Graph::wait_for(const ggml_tensor& node) const {
    if (backend_.device().abilities().is_far) {
        uint8_t byte = 0;
        ggml_backend_tensor_get(&node, &byte, 0, 1);
    }
}

// ggml asks about each node whether to stop after it, then reports that it was computed.
bool Graph::on_node(ggml_tensor* node, bool ask, void* graph) {
    auto& self = *static_cast<Graph*>(graph);
    if (ask) {
        self.operation_start_ = std::chrono::steady_clock::now();
        const size_t block = self.n_blocks_passed_;
        if (block < self.block_ends_.size() && self.block_ends_[block] == node) {
            ++self.n_blocks_passed_;
        }
        return self.pauses_after(node) || self.backend_.on_operation();
    }
    return self.tell_operation(*node) && (!self.pauses_after(node) || self.pause());
}

// Reports the seconds of the operation that was computed, if somebody asks. Returns whether to go
// on.
bool Graph::tell_operation(const ggml_tensor& node) {
    if (backend_.on_operation()) {
        wait_for(node);
    }
    const auto seconds = std::chrono::steady_clock::now() - operation_start_;
    try {
        if (backend_.on_operation()) {
            backend_.on_operation()(node, std::chrono::duration<double>(seconds).count());
        }
    } catch (...) {
        thrown_ = std::current_exception();
    }
    return !thrown_;
}

// At the end of some blocks: of all when they are streamed, else of as many as give a pause every
// tenth of a second.
bool Graph::pauses_after(const ggml_tensor* node) const {
    const size_t passed = n_blocks_passed_;
    return passed > 0 && block_ends_[passed - 1] == node &&
           (before_block_ || passed % blocks_per_pause_ == 0 || passed == block_ends_.size());
}

// Returns whether to go on.
bool Graph::pause() {
    try {
        tell_progress(n_blocks_passed_);
        if (before_block_ && n_blocks_passed_ < block_ends_.size()) {
            before_block_(n_blocks_passed_);
        }
    } catch (...) {
        thrown_ = std::current_exception();
    }
    return !thrown_ && !shared_work_->lacks_memory && !backend_.cancel_requested();
}

HostTensor Graph::read(const ggml_tensor* tensor) const {
    check(tensor->type == GGML_TYPE_F32 && ggml_is_contiguous(tensor), ErrorKind::internal,
          "tensor ", tensor->name, " cannot be read back");
    HostTensor result({tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]});
    ggml_backend_tensor_get(tensor, result.data.data(), 0, ggml_nbytes(tensor));
    backend_.traffic().received += ggml_nbytes(tensor);
    backend_.check_alive();
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

}  // namespace flux2
