// ggml-cuda's answer as it is compiled for HIP.
#include "audit/answers.h"

#include "ggml-backend-impl.h"
#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "ggml-impl.h"

#include <cstring>

#define GGML_USE_HIP

namespace {

// What the functions read of a device.
struct ggml_backend_cuda_device_context {
    int device;
};
using ggml_backend_cuda_buffer_type_context = ggml_backend_cuda_device_context;

struct Info {
    struct {
        int cc;
    } devices[1];
};

Info info;

const Info& ggml_cuda_info() {
    return info;
}

int ggml_cuda_highest_compiled_arch(int cc) {
    return cc;
}

// Sources lie on the device that is asked.
bool ggml_backend_buft_is_cuda(ggml_backend_buffer_type_t) {
    return false;
}

// Of NVIDIA GPUs.
bool ggml_cuda_flash_attn_ext_mma_f16_may_use_sparse(int, int, int, int) {
    return false;
}

bool ggml_cuda_flash_attn_ext_mma_f16_shall_use_sparse(int, const ggml_tensor*, int, int) {
    return false;
}

// An operation of language models that we do not have.
bool ggml_cuda_lightning_indexer_supported(int, const ggml_tensor*) {
    return false;
}

#include "hip_taken.h"

}  // namespace

bool flux2_hip_takes(const ggml_tensor* node, int architecture) {
    info.devices[0].cc = GGML_CUDA_CC_OFFSET_AMD + architecture;
    ggml_backend_cuda_device_context context = {0};
    ggml_backend_device device = {};
    device.context = &context;
    return ggml_backend_cuda_device_supports_op(&device, node);
}
