#include "compute/cpu/filter.hpp"

#include "compute/cpu/node.hpp"
#include "compute/cpu/panels.hpp"

#include <algorithm>

namespace flux2::cpu {
namespace {

constexpr const char* kConvName = "cpu conv";

// Inner index: position in the kernel, then input channel, as pixels are gathered.
void pack(ggml_tensor* dst, int ith, int nth, void*) {
    const ggml_tensor* kernel = dst->src[0];
    const int64_t n_taps = kernel->ne[0] * kernel->ne[1];
    const int64_t n_in = kernel->ne[2];
    const int64_t row_size = n_taps * n_in;
    const auto rows = scratch(kPanel * row_size);
    for (int64_t panel = ith; panel < dst->ne[2]; panel += nth) {
        read_panel(kernel, panel, rows.get());
        float* to = values(dst) + panel * row_size * kPanel;
        for (int64_t tap = 0; tap < n_taps; ++tap) {
            for (int64_t i = 0; i < n_in; ++i) {
                for (int64_t column = 0; column < kPanel; ++column) {
                    *to++ = rows[static_cast<size_t>(column * row_size + i * n_taps + tap)];
                }
            }
        }
    }
}

}  // namespace

void read_panel(const ggml_tensor* kernel, int64_t panel, float* to) {
    const int64_t row_size = kernel->ne[0] * kernel->ne[1] * kernel->ne[2];
    const int64_t first = panel * kPanel;
    const int64_t n = std::min(kPanel, kernel->ne[3] - first) * row_size;
    if (kernel->type == GGML_TYPE_F16) {
        ggml_fp16_to_fp32_row(static_cast<const ggml_fp16_t*>(kernel->data) + first * row_size, to,
                              n);
    } else {
        std::copy_n(values(kernel) + first * row_size, n, to);
    }
    std::fill(to + n, to + kPanel * row_size, 0.0f);
}

ggml_tensor* pack_kernel(Graph& g, ggml_tensor* kernel) {
    const int64_t n_panels = (kernel->ne[3] + kPanel - 1) / kPanel;
    return node(g, "cpu pack kernel",
                {kPanel, kernel->ne[0] * kernel->ne[1] * kernel->ne[2], n_panels, 1}, {kernel},
                pack);
}

ggml_tensor* conv_node(Graph& g, const std::array<int64_t, 4>& ne, ggml_tensor* panels,
                       ggml_tensor* x, ggml_tensor* bias, ggml_tensor* skip,
                       ggml_custom_op_t function) {
    return node(g, kConvName, ne, {panels, x, bias, skip}, function);
}

const ggml_tensor* kernel_of(const ggml_tensor* node) {
    const bool is_conv = has_name(node, kConvName);
    return is_conv ? node->src[0]->src[0] : nullptr;
}

}  // namespace flux2::cpu
