#include "compute/cpu/low_rank.hpp"

#include "compute/cpu/panels.hpp"
#include "compute/cpu/values.hpp"
#include "compute/shared_work.hpp"

#include <algorithm>

namespace flux2::cpu {

bool suits_panels(int64_t n_out) {
    return n_out % kPanel == 0;
}

std::vector<float> pack_panels(std::span<const float> matrix, int64_t n_in) {
    std::vector<float> panels(matrix.size());
    const auto n_out = static_cast<int64_t>(matrix.size()) / n_in;
    for (int64_t row = 0; row < n_out; ++row) {
        const int64_t panel = row / kPanel;
        for (int64_t i = 0; i < n_in; ++i) {
            panels[static_cast<size_t>((panel * n_in + i) * kPanel + row % kPanel)] =
                matrix[static_cast<size_t>(row * n_in + i)];
        }
    }
    return panels;
}

void add_pair(ggml_tensor* y, int, int nth, void* work) {
    const ggml_tensor* x = y->src[1];
    const ggml_tensor* down = y->src[2];  // [16, in, rank / 16]
    const ggml_tensor* up = y->src[3];    // [16, rank, out / 16]
    const int64_t n_in = down->ne[1];
    const int64_t rank = up->ne[1];
    const auto stride = [](const ggml_tensor* t) {
        return static_cast<int64_t>(t->nb[1] / sizeof(float));
    };
    // As many tokens at a time as let down x stay in the L1 cache.
    constexpr int64_t kTokens = 40;
    const auto inner = scratch(kTokens * rank);
    share_items(work, (y->ne[1] + kTokens - 1) / kTokens, nth, [&](int64_t i) {
        const int64_t first = i * kTokens;
        const int64_t n = std::min(kTokens, y->ne[1] - first);
        multiply({.a = values(x) + first * stride(x),
                  .a_stride = stride(x),
                  .n_rows = n,
                  .n_inner = n_in,
                  .b = values(down),
                  .b_stride = n_in * kPanel,
                  .n_panels = rank / kPanel,
                  .c = inner.get(),
                  .c_stride = rank});
        multiply({.a = inner.get(),
                  .a_stride = rank,
                  .n_rows = n,
                  .n_inner = rank,
                  .b = values(up),
                  .b_stride = rank * kPanel,
                  .n_panels = up->ne[2],
                  .c = values(y) + first * stride(y),
                  .c_stride = stride(y),
                  .adds = true});
    });
}

}  // namespace flux2::cpu
