#include "compute/low_rank.hpp"

#include "adapters/formulas.hpp"
#include "base/check.hpp"
#include "base/parallel.hpp"
#include "compute/cpu/low_rank.hpp"
#include "compute/cpu/panels.hpp"
#include "formats/tensor_type.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

namespace flux2 {
namespace {

// On CPUs F32: multiplies by so few columns are as fast as in other types.
ggml_type pair_type(const Backend& backend, const LowRankWeights::Item& item) {
    const ggml_type type = item.matrix->type;
    if (backend.is_cpu() || type == GGML_TYPE_F32) {
        return GGML_TYPE_F32;
    }
    return type == GGML_TYPE_BF16 || item.joins_unpacked ? GGML_TYPE_BF16 : GGML_TYPE_F16;
}

// Scales both by a power of two, so that F16 holds small values of either.
void balance(LowRankPair& pair) {
    float largest = 0;
    for (const float value : pair.down) {
        largest = std::max(largest, std::fabs(value));
    }
    if (largest == 0) {
        return;
    }
    const int exponent = std::ilogb(largest);
    for (float& value : pair.down) {
        value = std::ldexp(value, -exponent);
    }
    for (float& value : pair.up) {
        value = std::ldexp(value, exponent);
    }
}

int64_t rank_of(const LowRankWeights::Item& item) {
    if (item.n_columns > 0) {
        return item.n_columns;
    }
    return item.joins_unpacked ? LowRankWeights::padded_columns(item.rank)
                               : LowRankWeights::padded(item.rank);
}

// Rows of `from` values each as rows of `to`, filled up with zeros.
std::vector<float> widened(std::span<const float> values, int64_t from, int64_t to) {
    const auto n_rows = static_cast<int64_t>(values.size()) / from;
    std::vector<float> result(static_cast<size_t>(n_rows * to));
    for (int64_t row = 0; row < n_rows; ++row) {
        std::copy_n(values.begin() + row * from, from, result.begin() + row * to);
    }
    return result;
}

std::vector<std::byte> encoded(ggml_type type, std::span<const float> values, int64_t row) {
    std::vector<std::byte> bytes(
        data_bytes(static_cast<TensorType>(type), static_cast<int64_t>(values.size())));
    from_f32(static_cast<TensorType>(type), values, row, bytes);
    return bytes;
}

}  // namespace

int64_t LowRankWeights::padded(int64_t rank) {
    constexpr int64_t kStep = 16;
    return GGML_PAD(rank, kStep);
}

int64_t LowRankWeights::padded_columns(int64_t rank) {
    constexpr int64_t kStep = 64;
    return GGML_PAD(rank, kStep);
}

void LowRankWeights::place(const std::vector<Item>& items) {
    clear();  // gives its memory back first
    if (items.empty()) {
        return;
    }
    Pairs pairs = {TensorContext(2 * items.size()), {}, {}};
    std::vector<ggml_tensor*> tensors;
    const auto add = [&](ggml_type type, int64_t width, int64_t n, bool in_panels) {
        return tensors.emplace_back(
            in_panels
                ? ggml_new_tensor_3d(pairs.context.get(), type, cpu::kPanel, width, n / cpu::kPanel)
                : ggml_new_tensor_2d(pairs.context.get(), type, width, n));
    };
    for (const Item& item : items) {
        const ggml_type type = pair_type(backend_, item);
        const int64_t rank = rank_of(item);
        const int64_t n_out = item.matrix->ne[1];
        const bool in_panels = backend_.operations() == Operations::cpu && cpu::suits_panels(n_out);
        ggml_tensor* down = add(type, item.n_in, rank, in_panels);
        ggml_tensor* up = item.n_columns > 0 ? nullptr : add(type, rank, n_out, in_panels);
        pairs.table.emplace(item.matrix, LowRankTensors{down, up, item.joins_unpacked, in_panels});
    }
    pairs.buffer = backend_.allocate(tensors, backend_.buffer_type(), "a set of adapters");
    pairs.buffer.set_usage(GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    if (!backend_.measures_only()) {
        const bool parallel = backend_.is_cpu() || backend_.takes_parallel_writes();
        parallel_for(items.size(), parallel ? backend_.n_threads() : 1,
                     [&](size_t i, size_t) { fill(items[i], pairs.table.at(items[i].matrix)); });
        backend_.check_alive();
    }
    pairs_ = std::move(pairs);
}

void LowRankWeights::clear() {
    pairs_ = {};
}

void LowRankWeights::fill(const Item& item, const LowRankTensors& tensors) const {
    check(!backend_.cancel_requested(), ErrorKind::cancelled, "cancelled");
    LowRankPair pair = item.read();
    const ggml_type type = tensors.down->type;
    if (type == GGML_TYPE_F16) {
        balance(pair);
    }
    const int64_t rank = rank_of(item);
    pair.down.resize(static_cast<size_t>(rank * item.n_in));  // rows of zeros
    pair.up = widened(pair.up, pair.rank, rank);
    if (tensors.in_panels) {
        pair.down = cpu::pack_panels(pair.down, item.n_in);
        pair.up = cpu::pack_panels(pair.up, rank);
    }
    const std::vector<std::byte> down = encoded(type, pair.down, item.n_in);
    ggml_backend_tensor_set(tensors.down, down.data(), 0, down.size());
    const std::vector<std::byte> up = encoded(type, pair.up, rank);
    if (tensors.up != nullptr) {
        ggml_backend_tensor_set(tensors.up, up.data(), 0, up.size());
        return;
    }
    const size_t row_bytes = ggml_row_size(type, rank);
    ggml_backend_tensor_set_2d(item.matrix, up.data(), ggml_row_size(type, item.n_in), row_bytes,
                               static_cast<size_t>(item.matrix->ne[1]), item.matrix->nb[1],
                               row_bytes);
}

}  // namespace flux2
