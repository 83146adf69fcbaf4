#include "compute/cuda/backend.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "compute/cuda/attention.hpp"
#include "compute/cuda/kernel_table.hpp"
#include "compute/cuda/large_products.hpp"

#include <ggml-backend-impl.h>
#include <ggml-impl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

namespace flux2::cuda {
namespace {

void require(cudaError_t status, const char* what) {
    check(status == cudaSuccess, ErrorKind::backend, "CUDA: ", what,
          " failed: ", cudaGetErrorString(status));
}

// ---- The device: ggml's, but it computes our nodes too ----

ggml_backend_dev_t cuda_device(ggml_backend_dev_t device) {
    return static_cast<ggml_backend_dev_t>(device->context);
}

ggml_backend_device_i device_interface() {
    ggml_backend_device_i i = {};
    i.get_name = [](ggml_backend_dev_t d) { return ggml_backend_dev_name(cuda_device(d)); };
    i.get_description = [](ggml_backend_dev_t d) {
        return ggml_backend_dev_description(cuda_device(d));
    };
    i.get_memory = [](ggml_backend_dev_t d, size_t* free, size_t* total) {
        ggml_backend_dev_memory(cuda_device(d), free, total);
    };
    i.get_type = [](ggml_backend_dev_t d) { return ggml_backend_dev_type(cuda_device(d)); };
    i.get_props = [](ggml_backend_dev_t d, ggml_backend_dev_props* props) {
        ggml_backend_dev_get_props(cuda_device(d), props);
    };
    i.init_backend = [](ggml_backend_dev_t d, const char* params) {
        return ggml_backend_dev_init(cuda_device(d), params);
    };
    i.get_buffer_type = [](ggml_backend_dev_t d) {
        return ggml_backend_dev_buffer_type(cuda_device(d));
    };
    i.get_host_buffer_type = [](ggml_backend_dev_t d) {
        return ggml_backend_dev_host_buffer_type(cuda_device(d));
    };
    i.supports_op = [](ggml_backend_dev_t d, const ggml_tensor* op) {
        return op->op == GGML_OP_CUSTOM ? find_kernel(op) != nullptr
                                        : ggml_backend_dev_supports_op(cuda_device(d), op);
    };
    i.supports_buft = [](ggml_backend_dev_t d, ggml_backend_buffer_type_t type) {
        return ggml_backend_dev_supports_buft(cuda_device(d), type);
    };
    i.offload_op = [](ggml_backend_dev_t d, const ggml_tensor* op) {
        return ggml_backend_dev_offload_op(cuda_device(d), op);
    };
    return i;
}

// One for each of ggml's devices, for as long as the program runs, as ggml's own are.
ggml_backend_dev_t extended_device(ggml_backend_dev_t cuda) {
    static std::mutex mutex;
    static std::map<ggml_backend_dev_t, ggml_backend_device> devices;
    const std::lock_guard lock(mutex);
    return &devices
                .try_emplace(cuda, ggml_backend_device{.iface = device_interface(),
                                                       .reg = ggml_backend_dev_backend_reg(cuda),
                                                       .context = cuda})
                .first->second;
}

// ---- The backend ----

int find_number(ggml_backend_dev_t device) {
    ggml_backend_dev_props props = {};
    ggml_backend_dev_get_props(device, &props);
    int number = -1;
    return props.device_id != nullptr &&
                   cudaDeviceGetByPCIBusId(&number, props.device_id) == cudaSuccess
               ? number
               : -1;
}

int compute_capability(int device) {
    int major = 0;
    int minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return 10 * major + minor;
}

// An error that is left behind would be taken by the next launch for its own.
void clear_error() {
    cudaGetLastError();
}

// Whether the current device, this one, has the kernels for Hopper.
bool has_hopper_kernels(int device) {
    constexpr int kHopper = 90;
    return compute_capability(device) == kHopper && process_may_use_hopper() &&
           has_hopper_attention();
}

struct Delete {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
    void operator()(cublasHandle_t blas) const { cublasDestroy(blas); }
    void operator()(void* memory) const { cudaFree(memory); }
};

// What ggml's CUDA backend keeps in its events.
static_assert(GGML_BACKEND_API_VERSION == 2, "see whether ggml's events still hold a cudaEvent_t");
cudaEvent_t event_of(const ggml_backend_event_ptr& event) {
    return static_cast<cudaEvent_t>(event->context);
}

ggml_backend_event_ptr make_event(ggml_backend_t cuda) {
    ggml_backend_event_ptr event(ggml_backend_event_new(ggml_backend_get_device(cuda)));
    check(event != nullptr, ErrorKind::backend, "CUDA: making an event failed");
    require(cudaEventQuery(event_of(event)), "asking ggml's event");
    return event;
}

// Two streams: ggml's and ours. Whenever work changes over to the other one, that one waits for
// everything the first was given.
class Streams {
  public:
    Streams(ggml_backend_ptr cuda, int device)
        : cuda_(std::move(cuda)),
          device_(device),
          theirs_done_(make_event(cuda_.get())),
          ours_done_(make_event(cuda_.get())) {
        require(cudaSetDevice(device), "choosing the device");
        context_.hopper = has_hopper_kernels(device);
        require(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking),
                "making a stream");
        stream_.reset(context_.stream);
        require(cudaMalloc(&context_.scratch, kScratchBytes), "making room for a kernel");
        scratch_.reset(context_.scratch);
        check(cublasCreate(&context_.blas) == CUBLAS_STATUS_SUCCESS, ErrorKind::backend,
              "cuBLAS could not be started; is there memory left on the device?");
        blas_.reset(context_.blas);
        check(cublasSetStream(context_.blas, context_.stream) == CUBLAS_STATUS_SUCCESS,
              ErrorKind::backend, "cuBLAS does not take our stream");
        if (context_.hopper) {
            large_products_ = std::make_unique<LargeProducts>(context_.blas, context_.stream);
            context_.large_products = large_products_.get();
        }
    }

    ~Streams() {
        cudaSetDevice(device_);
        cudaStreamSynchronize(context_.stream);
    }

    Streams(const Streams&) = delete;
    Streams& operator=(const Streams&) = delete;

    ggml_backend_t cuda() const { return cuda_.get(); }

    ggml_status compute(ggml_cgraph& graph) {
        if (!succeeded(cudaSetDevice(device_), "choosing the device")) {
            return GGML_STATUS_FAILED;
        }
        const ggml_status status = launch(graph);
        // Whoever waits for theirs then waits for all, after a failure too.
        return enter_theirs() || status != GGML_STATUS_SUCCESS ? status : GGML_STATUS_FAILED;
    }

  private:
    // Starts all nodes, until one fails.
    ggml_status launch(ggml_cgraph& graph) {
        for (int i = 0; i < graph.n_nodes; ++i) {
            Launch kernel = find_kernel(graph.nodes[i]);
            if (kernel == nullptr) {
                const int end = end_of_theirs(graph, i);
                const ggml_status status = run_theirs(graph, i, end);
                if (status != GGML_STATUS_SUCCESS) {
                    return status;
                }
                i = end - 1;
                continue;
            }
            const int next = next_computed(graph, i + 1);
            const Launch both = next < graph.n_nodes
                                    ? find_kernel_of_both(graph.nodes[i], graph.nodes[next])
                                    : nullptr;
            if (both != nullptr) {
                kernel = both;
                i = next;
            }
            if (!enter_ours()) {
                return GGML_STATUS_FAILED;
            }
            const cudaError_t error = kernel(context_, graph.nodes[i]);
            if (!succeeded(error, graph.nodes[i]->name)) {
                return error == cudaErrorMemoryAllocation ? GGML_STATUS_ALLOC_FAILED
                                                          : GGML_STATUS_FAILED;
            }
        }
        return GGML_STATUS_SUCCESS;
    }

    // For what ggml calls: it passes on no exceptions.
    static bool succeeded(cudaError_t status, const char* what) {
        if (status != cudaSuccess) {
            clear_error();
            log(LogLevel::error, concat("CUDA: ", what, " failed: ", cudaGetErrorString(status)));
        }
        return status == cudaSuccess;
    }

    // The next node that is no view, from `begin` on.
    static int next_computed(const ggml_cgraph& graph, int begin) {
        int next = begin;
        while (next < graph.n_nodes && ggml_op_is_empty(graph.nodes[next]->op)) {
            ++next;
        }
        return next;
    }

    // Where the next node of ours is, from `begin` on.
    static int end_of_theirs(const ggml_cgraph& graph, int begin) {
        int end = begin;
        while (end < graph.n_nodes && find_kernel(graph.nodes[end]) == nullptr) {
            ++end;
        }
        return end;
    }

    // Lets ggml compute nodes [begin, end).
    ggml_status run_theirs(const ggml_cgraph& graph, int begin, int end) {
        const bool computes =
            std::any_of(graph.nodes + begin, graph.nodes + end,
                        [](const ggml_tensor* node) { return !ggml_op_is_empty(node->op); });
        if (!computes) {
            return GGML_STATUS_SUCCESS;
        }
        if (!enter_theirs()) {
            return GGML_STATUS_FAILED;
        }
        ggml_cgraph stretch = graph;
        stretch.nodes += begin;
        stretch.n_nodes = end - begin;
        stretch.n_leafs = 0;
        stretch.uid = 0;
        try {
            return ggml_backend_graph_compute_async(cuda_.get(), &stretch);
        } catch (const std::bad_alloc&) {  // of ggml's memory pool, see ggml/package.cmake
            clear_error();
            return GGML_STATUS_ALLOC_FAILED;
        }
    }

    bool enter_ours() {
        if (!in_ours_) {
            ggml_backend_event_record(theirs_done_.get(), cuda_.get());
            in_ours_ = succeeded(cudaStreamWaitEvent(context_.stream, event_of(theirs_done_)),
                                 "waiting for ggml's stream");
        }
        return in_ours_;
    }

    // Where no event can be recorded, this thread waits for ours instead and false is returned.
    bool enter_theirs() {
        if (!std::exchange(in_ours_, false)) {
            return true;
        }
        const bool recorded =
            succeeded(cudaEventRecord(event_of(ours_done_), context_.stream), "recording an event");
        if (recorded) {
            ggml_backend_event_wait(cuda_.get(), ours_done_.get());
        } else {
            succeeded(cudaStreamSynchronize(context_.stream), "waiting for our stream");
        }
        return recorded;
    }

    ggml_backend_ptr cuda_;
    int device_;
    ggml_backend_event_ptr theirs_done_, ours_done_;
    std::unique_ptr<CUstream_st, Delete> stream_;
    std::unique_ptr<void, Delete> scratch_;
    std::unique_ptr<cublasContext, Delete> blas_;
    std::unique_ptr<LargeProducts> large_products_;
    Context context_;  // borrows these
    bool in_ours_ = false;
};

Streams& streams_of(ggml_backend_t backend) {
    return *static_cast<Streams*>(backend->context);
}

ggml_backend_i backend_interface() {
    ggml_backend_i i = {};
    i.get_name = [](ggml_backend_t b) { return ggml_backend_name(streams_of(b).cuda()); };
    i.free = [](ggml_backend_t b) {
        delete &streams_of(b);
        delete b;
    };
    i.set_tensor_async = [](ggml_backend_t b, ggml_tensor* tensor, const void* data, size_t offset,
                            size_t size) {
        ggml_backend_tensor_set_async(streams_of(b).cuda(), tensor, data, offset, size);
    };
    i.get_tensor_async = [](ggml_backend_t b, const ggml_tensor* tensor, void* data, size_t offset,
                            size_t size) {
        ggml_backend_tensor_get_async(streams_of(b).cuda(), tensor, data, offset, size);
    };
    i.synchronize = [](ggml_backend_t b) { ggml_backend_synchronize(streams_of(b).cuda()); };
    i.graph_compute = [](ggml_backend_t b, ggml_cgraph* graph) {
        return streams_of(b).compute(*graph);
    };
    return i;
}

ggml_guid_t guid() {
    static ggml_guid id = {'f', 'l', 'u', 'x', '2', '-', 'c', 'u', 'd', 'a'};
    return &id;
}

}  // namespace

bool runs_on(ggml_backend_dev_t device) {
    constexpr int kOldest = 80;
    const std::string name = ggml_backend_reg_name(ggml_backend_dev_backend_reg(device));
    if (name != "CUDA") {
        return false;
    }
    const int number = find_number(device);
    if (number < 0 || compute_capability(number) < kOldest ||
        cudaSetDevice(number) != cudaSuccess) {
        return false;
    }
    const bool built = attention_architecture() >= kOldest;
    if (!built) {
        log(LogLevel::warning,
            concat(ggml_backend_dev_name(device), ": our kernels were not built for sm_",
                   compute_capability(number),
                   ", so ggml's slower operations are used; build with "
                   "-DCMAKE_CUDA_ARCHITECTURES=",
                   compute_capability(number)));
    }
    return built;
}

bool has_hopper_kernels(ggml_backend_dev_t device) {
    const int number = find_number(device);
    return number >= 0 && cudaSetDevice(number) == cudaSuccess && has_hopper_kernels(number);
}

ggml_backend_ptr extend(ggml_backend_ptr cuda) {
    const ggml_backend_dev_t device = ggml_backend_get_device(cuda.get());
    auto streams = std::make_unique<Streams>(std::move(cuda), find_number(device));
    return ggml_backend_ptr(new ggml_backend{.guid = guid(),
                                             .iface = backend_interface(),
                                             .device = extended_device(device),
                                             .context = streams.release()});
}

}  // namespace flux2::cuda
