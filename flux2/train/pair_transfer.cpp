#include "train/pair_transfer.hpp"

#include "base/check.hpp"
#include "base/parallel.hpp"
#include "compute/low_rank.hpp"

#include <algorithm>

namespace flux2 {

PairTransfer::PairTransfer(const Backend& backend, const TrainedAdapter& adapter)
    : backend_(backend), adapter_(adapter) {
    for (size_t i = 0; i < adapter.modules().size(); ++i) {
        add_items(i);
    }
    if (!backend.measures_only()) {
        const size_t n = items_.back().first + items_.back().size();
        memory_.reset(
            ggml_backend_buft_alloc_buffer(backend.upload_buffer_type(), n * sizeof(float)));
        check(memory_ != nullptr, ErrorKind::out_of_memory,
              "there is no RAM for the LoRA's values; choose a lower rank");
    }
}

void PairTransfer::add_items(size_t i) {
    const TrainedModule& module = adapter_.modules()[i];
    const auto add = [&](TrainedFactor TrainedPair::*factor, const TrainedMatrix& matrix,
                         int64_t n_in, int64_t n_out, float scale) {
        const size_t first = items_.empty() ? 0 : items_.back().first + items_.back().size();
        items_.push_back({i, factor, matrix, n_in, n_out, scale, first});
    };
    const TrainedMatrix &a = module.a, &b = module.b, &w1 = module.w1;
    const float scale = adapter_.scale(module);
    if (w1.exists()) {
        add(&TrainedPair::w1, w1, w1.n_in, w1.n_out, scale);
    }
    if (b.exists()) {
        const int64_t rank = LowRankWeights::padded(b.n_in);
        add(&TrainedPair::a, a, a.n_in, rank, 1);
        add(&TrainedPair::b, b, rank, b.n_out, w1.exists() ? 1 : scale);
    } else {
        add(&TrainedPair::a, a, a.n_in, a.n_out, 1);
    }
}

void PairTransfer::declare(Graph& g, size_t module, TrainedPair& pair) const {
    for (const Item& item : items_) {
        if (item.module == module) {
            TrainedFactor& factor = pair.*item.factor;
            factor.values =
                g.input_f32(concat(adapter_.modules()[module].name, ".", item.matrix.first),
                            {item.n_in, item.n_out});
            factor.matrix = as_matrix(g, factor.values);
        }
    }
}

std::span<float> PairTransfer::place(const Item& item) const {
    auto* values = static_cast<float*>(ggml_backend_buffer_get_base(memory_.get()));
    return {values + item.first, item.size()};
}

void PairTransfer::fill(const Item& item) const {
    const TrainedMatrix& matrix = item.matrix;
    const std::span<float> to = place(item);
    const auto n = static_cast<size_t>(matrix.n_in);
    const auto width = static_cast<size_t>(item.n_in);
    for (size_t row = 0; row < static_cast<size_t>(item.n_out); ++row) {
        float* values = to.data() + row * width;
        const bool is_there = row < static_cast<size_t>(matrix.n_out);
        const float* from = adapter_.parameters().data() + matrix.first + row * n;
        for (size_t j = 0; is_there && j < n; ++j) {
            values[j] = item.scale * from[j];
        }
        std::fill(values + (is_there ? n : 0), values + width, 0.0f);
    }
}

void PairTransfer::add(const Item& item, float weight, std::span<float> gradients) const {
    const TrainedMatrix& matrix = item.matrix;
    const std::span<const float> from = place(item);
    const float factor = weight * item.scale;
    float* to = gradients.data() + matrix.first;
    const auto n = static_cast<size_t>(matrix.n_in);
    const bool is_transposed = item.factor == &TrainedPair::b;  // [out, in]
    const auto width = static_cast<size_t>(is_transposed ? item.n_out : item.n_in);
    for (size_t row = 0; row < static_cast<size_t>(matrix.n_out); ++row) {
        for (size_t j = 0; j < n; ++j) {
            to[row * n + j] += factor * from[is_transposed ? j * width + row : row * width + j];
        }
    }
}

void PairTransfer::send(Graph& g, std::span<const TrainedPair* const> pairs) {
    parallel_for(items_.size(), backend_.n_threads(), [&](size_t i, size_t) { fill(items_[i]); });
    for (const Item& item : items_) {
        g.begin_set((pairs[item.module]->*item.factor).values, place(item));
    }
    g.wait();
}

void PairTransfer::add_gradients(const Graph& g, std::span<const TrainedPair* const> pairs,
                                 float weight, std::span<float> gradients) {
    for (const Item& item : items_) {
        g.begin_read((pairs[item.module]->*item.factor).gradient, place(item));
    }
    g.wait();
    parallel_for(items_.size(), backend_.n_threads(),
                 [&](size_t i, size_t) { add(items_[i], weight, gradients); });
}

}  // namespace flux2
