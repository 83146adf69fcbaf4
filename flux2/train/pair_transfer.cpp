#include "train/pair_transfer.hpp"

#include "base/check.hpp"
#include "base/parallel.hpp"
#include "compute/low_rank.hpp"

#include <algorithm>

namespace flux2 {

PairTransfer::PairTransfer(const Backend& backend, const TrainedAdapter& adapter)
    : backend_(backend), adapter_(adapter), rank_(LowRankWeights::padded(adapter.rank())) {
    size_t n = 0;
    for (const TrainedModule& module : adapter.modules()) {
        first_.push_back(n);
        n += static_cast<size_t>(rank_ * (module.n_in + module.n_out));
    }
    if (!backend.measures_only()) {
        memory_.reset(
            ggml_backend_buft_alloc_buffer(backend.upload_buffer_type(), n * sizeof(float)));
        check(memory_ != nullptr, ErrorKind::out_of_memory,
              "there is no RAM for the LoRA's values; choose a lower rank");
    }
}

PairTransfer::Places PairTransfer::places(size_t module) const {
    auto* values = static_cast<float*>(ggml_backend_buffer_get_base(memory_.get()));
    const TrainedModule& of = adapter_.modules()[module];
    const auto n_a = static_cast<size_t>(rank_ * of.n_in);
    const auto n_b = static_cast<size_t>(rank_ * of.n_out);
    return {{values + first_[module], n_a}, {values + first_[module] + n_a, n_b}};
}

void PairTransfer::send(Graph& g, std::span<const TrainedPair* const> pairs) {
    const std::span<const float> parameters = adapter_.parameters();
    const auto rank = static_cast<size_t>(adapter_.rank());
    const auto padded = static_cast<size_t>(rank_);
    parallel_for(pairs.size(), backend_.n_threads(), [&](size_t i, size_t) {
        const TrainedModule& module = adapter_.modules()[i];
        const Places to = places(i);
        const size_t n_a = rank * static_cast<size_t>(module.n_in);
        std::copy_n(parameters.begin() + static_cast<std::ptrdiff_t>(module.a), n_a, to.a.begin());
        std::fill(to.a.begin() + static_cast<std::ptrdiff_t>(n_a), to.a.end(), 0.0f);
        const float scale = adapter_.scale();
        for (size_t row = 0; row < static_cast<size_t>(module.n_out); ++row) {
            const float* from = parameters.data() + module.b + row * rank;
            float* b = to.b.data() + row * padded;
            for (size_t j = 0; j < rank; ++j) {
                b[j] = scale * from[j];
            }
            std::fill(b + rank, b + padded, 0.0f);
        }
    });
    for (size_t i = 0; i < pairs.size(); ++i) {
        g.begin_set(pairs[i]->a_values, places(i).a);
        g.begin_set(pairs[i]->b_values, places(i).b);
    }
    g.wait();
}

void PairTransfer::add_gradients(const Graph& g, std::span<const TrainedPair* const> pairs,
                                 float weight, std::span<float> gradients) {
    for (size_t i = 0; i < pairs.size(); ++i) {
        g.begin_read(pairs[i]->da, places(i).a);
        g.begin_read(pairs[i]->db, places(i).b);
    }
    g.wait();
    const auto rank = static_cast<size_t>(adapter_.rank());
    const float factor = weight * adapter_.scale();
    parallel_for(pairs.size(), backend_.n_threads(), [&](size_t i, size_t) {
        const TrainedModule& module = adapter_.modules()[i];
        const Places from = places(i);  // [in, padded rank] and [out, padded rank]
        float* da = gradients.data() + module.a;
        for (size_t j = 0; j < rank * static_cast<size_t>(module.n_in); ++j) {
            da[j] += weight * from.a[j];
        }
        const auto n_out = static_cast<size_t>(module.n_out);
        float* db = gradients.data() + module.b;
        for (size_t row = 0; row < n_out; ++row) {
            for (size_t j = 0; j < rank; ++j) {
                db[row * rank + j] += factor * from.b[j * n_out + row];
            }
        }
    });
}

}  // namespace flux2
