/* What ggml's backends answer when asked whether they compute a node, without their devices: their
 * own functions, taken out of ggml's source. */
#pragma once

#include <ggml.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An Apple GPU from M1 on; without bfloat as GGML_METAL_BF16_DISABLE makes one. */
bool flux2_metal_takes(const struct ggml_tensor* node, bool has_bfloat);

/* An AMD GPU of this architecture, as rocminfo prints it in hexadecimal: 0x1100 for gfx1100. */
bool flux2_hip_takes(const struct ggml_tensor* node, int architecture);

/* An Intel GPU, without oneDNN. */
bool flux2_sycl_takes(const struct ggml_tensor* node);

#ifdef __cplusplus
}
#endif
