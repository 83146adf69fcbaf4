#include "compute/cpu/filter.hpp"

#include "compute/cpu/panels.hpp"
#include "compute/cpu/values.hpp"
#include "compute/plain/own_node.hpp"
#include "compute/shared_work.hpp"

#include <ggml-cpu.h>

#include <algorithm>

namespace flux2::cpu {
namespace {

// Inner index: position in the filter, then input channel, as pixels are gathered.
void pack(ggml_tensor* dst, int, int nth, void* work) {
    const ggml_tensor* filter = dst->src[0];
    const int64_t n_taps = filter->ne[0] * filter->ne[1];
    const int64_t n_in = filter->ne[2];
    const int64_t row_size = n_taps * n_in;
    const auto rows = scratch(kPanel * row_size);
    share_items(work, dst->ne[2], nth, [&](int64_t panel) {
        read_panel(filter, panel, rows.get());
        float* to = values(dst) + panel * row_size * kPanel;
        for (int64_t tap = 0; tap < n_taps; ++tap) {
            for (int64_t i = 0; i < n_in; ++i) {
                for (int64_t column = 0; column < kPanel; ++column) {
                    *to++ = rows[static_cast<size_t>(column * row_size + i * n_taps + tap)];
                }
            }
        }
    });
}

const OwnOperation kPackFilter = {"cpu pack filter", pack};

}  // namespace

void read_panel(const ggml_tensor* filter, int64_t panel, float* to) {
    const int64_t row_size = filter->ne[0] * filter->ne[1] * filter->ne[2];
    const int64_t first = panel * kPanel;
    const int64_t n = std::min(kPanel, filter->ne[3] - first) * row_size;
    if (filter->type == GGML_TYPE_F16) {
        ggml_cpu_fp16_to_fp32(static_cast<const ggml_fp16_t*>(filter->data) + first * row_size, to,
                              n);
    } else {
        std::copy_n(values(filter) + first * row_size, n, to);
    }
    std::fill(to + n, to + kPanel * row_size, 0.0f);
}

ggml_tensor* pack_filter(Graph& g, ggml_tensor* filter) {
    const int64_t n_panels = (filter->ne[3] + kPanel - 1) / kPanel;
    const int64_t row_size = filter->ne[0] * filter->ne[1] * filter->ne[2];
    return own_node(g, {kPackFilter, {}, {kPanel, row_size, n_panels, 1}}, {filter});
}

}  // namespace flux2::cpu
