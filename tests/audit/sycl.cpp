// ggml-sycl's answer.
#include "audit/answers.h"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include <cstring>

#define WARP_SIZE 16  // as ggml sets it for Intel GPUs

namespace {

// What the functions read of a device.
struct ggml_backend_sycl_device_context {
    int device;
};

enum class gpu_arch { other, intel_gpu_bmg_g21, intel_gpu_bmg_g31 };

struct Info {
    struct {
        struct {
            gpu_arch arch;
        } hw_info;
    } devices[1];
};

const Info info = {};

const Info& ggml_sycl_info() {
    return info;
}

// Its defaults.
const int g_ggml_sycl_enable_flash_attention = 1;
const int g_ggml_sycl_enable_mkl_fa = 1;

// A faster way for some of the nodes that other kernels take as well.
bool ggml_sycl_flash_attn_ext_onednn_supported(const ggml_tensor*) {
    return false;
}

#include "sycl_taken.h"

}  // namespace

bool flux2_sycl_takes(const ggml_tensor* node) {
    ggml_backend_sycl_device_context context = {0};
    ggml_backend_device device = {};
    device.context = &context;
    return do_ggml_backend_sycl_device_supports_op(&device, node);
}
