#include "cuda/imitation.hpp"

#include "compute/cuda/attention.hpp"
#include "compute/cuda/kernel_table.hpp"
#include "compute/cuda/large_products.hpp"

#include <ggml-backend-impl.h>

#include <deque>

namespace flux2::test {
namespace {

ImitatedCuda* current = nullptr;

bool succeeds(const char* function) {
    return current->fails != function;
}

cudaError_t status_of(const char* function) {
    return succeeds(function) ? cudaSuccess : cudaErrorMemoryAllocation;
}

// Makes what `count` counts, an address that is nothing else's.
template <typename Made>
cudaError_t make(const char* function, std::atomic<int>& count, Made** made) {
    if (succeeds(function)) {
        *made = reinterpret_cast<Made*>(new char);
        ++count;
    }
    return status_of(function);
}

template <typename Made>
void release(std::atomic<int>& count, Made* made) {
    delete reinterpret_cast<char*>(made);
    --count;
}

}  // namespace

ImitatedCuda::ImitatedCuda() {
    current = this;
}

ImitatedCuda::~ImitatedCuda() {
    current = nullptr;
}

ggml_backend_dev_t new_device() {
    static std::deque<ggml_backend_device> devices;
    ggml_backend_device device = {};
    device.iface.get_name = [](ggml_backend_dev_t) { return "CUDA0"; };
    device.iface.get_props = [](ggml_backend_dev_t, ggml_backend_dev_props* props) {
        props->device_id = "0000:01:00.0";
    };
    device.iface.event_new = [](ggml_backend_dev_t d) -> ggml_backend_event_t {
        if (!succeeds("event_new")) {
            return nullptr;
        }
        ++current->n_events;
        return new ggml_backend_event{.device = d, .context = nullptr};
    };
    device.iface.event_free = [](ggml_backend_dev_t, ggml_backend_event_t event) {
        delete event;
        --current->n_events;
    };
    return &devices.emplace_back(device);
}

ggml_backend_ptr start(ggml_backend_dev_t device) {
    auto* backend = new ggml_backend{};
    backend->device = device;
    backend->iface.get_name = [](ggml_backend_t) { return "CUDA0"; };
    backend->iface.free = [](ggml_backend_t b) {
        delete b;
        --current->n_backends;
    };
    backend->iface.graph_compute = [](ggml_backend_t, ggml_cgraph*) { return current->theirs; };
    backend->iface.event_record = [](ggml_backend_t, ggml_backend_event_t) {};
    backend->iface.event_wait = [](ggml_backend_t, ggml_backend_event_t) {};
    ++current->n_backends;
    return ggml_backend_ptr(backend);
}

}  // namespace flux2::test

using flux2::test::current;

// ---- CUDA ----

const char* cudaGetErrorString(cudaError_t) {
    return "out of memory";
}
cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
    return flux2::test::status_of("cudaSetDevice");
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char*) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 8 : 0;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    return flux2::test::make("cudaStreamCreateWithFlags", current->n_streams, stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    flux2::test::release(current->n_streams, stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
    return flux2::test::status_of("cudaStreamWaitEvent");
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
    return flux2::test::status_of("cudaEventRecord");
}
cudaError_t cudaMalloc(void** memory, size_t) {
    return flux2::test::make("cudaMalloc", current->n_memory, memory);
}
cudaError_t cudaFree(void* memory) {
    flux2::test::release(current->n_memory, memory);
    return cudaSuccess;
}

// ---- cuBLAS ----

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    return flux2::test::make("cublasCreate", current->n_handles, handle) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    flux2::test::release(current->n_handles, handle);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) {
    return flux2::test::succeeds("cublasSetStream") ? CUBLAS_STATUS_SUCCESS
                                                    : CUBLAS_STATUS_ALLOC_FAILED;
}

// ---- Our kernels ----

namespace flux2::cuda {

Launch find_kernel(const ggml_tensor* node) {
    if (node->op != GGML_OP_SQR) {
        return nullptr;
    }
    return [](const Context&, const ggml_tensor*) {
        ++current->n_launched;
        return flux2::test::status_of("a kernel");
    };
}

Launch find_kernel_of_both(const ggml_tensor*, const ggml_tensor*) {
    return nullptr;
}

bool has_hopper_attention() {
    return false;
}

int attention_architecture() {
    return 80;
}

class LargeProducts::Choice {};

LargeProducts::LargeProducts(cublasHandle_t, cudaStream_t stream)
    : blas_(nullptr), stream_(stream) {}

LargeProducts::~LargeProducts() = default;

}  // namespace flux2::cuda
