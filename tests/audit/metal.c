/* ggml-metal's answer. Names that a build with Metal has too are renamed. */
#include "audit/answers.h"

#include "ggml-impl.h"
#include "ggml-metal-device.h"
#include "ggml-metal-impl.h"

/* What the function reads of a device. */
struct ggml_metal_device {
    struct ggml_metal_device_props props;
};

#define ggml_metal_op_mul_mat_use_fwht flux2_taken_use_fwht
#define ggml_metal_op_mul_mat_use_mm flux2_taken_use_mm
#define ggml_metal_op_mul_mat_id_use_mm flux2_taken_id_use_mm
#define ggml_metal_device_supports_op flux2_taken_metal_supports_op
#include "metal_taken.h"

/* What ggml_metal_op_flash_attn_ext asserts beyond that. */
static bool has_few_queries(const struct ggml_tensor* node) {
    return node->op != GGML_OP_FLASH_ATTN_EXT || node->src[0]->ne[1] < 65536;
}

bool flux2_metal_takes(const struct ggml_tensor* node, bool has_bfloat) {
    struct ggml_metal_device device = {0};
    device.props.has_simdgroup_reduction = true;
    device.props.has_simdgroup_mm = true;
    device.props.has_bfloat = has_bfloat;
    return flux2_taken_metal_supports_op(&device, node) && has_few_queries(node);
}
