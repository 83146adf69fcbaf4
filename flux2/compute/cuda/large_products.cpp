#include "compute/cuda/large_products.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace flux2::cuda {
namespace {

struct Delete {
    void operator()(cublasLtMatmulDesc_t operation) const { cublasLtMatmulDescDestroy(operation); }
    void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
    void operator()(cublasLtMatmulPreference_t preference) const {
        cublasLtMatmulPreferenceDestroy(preference);
    }
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Operation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Delete>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Delete>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Delete>;
using Event = std::unique_ptr<CUevent_st, Delete>;

// cuBLAS counts columns first, so w is transposed to it.
Operation make_operation() {
    cublasLtMatmulDesc_t made = nullptr;
    if (cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F) != CUBLAS_STATUS_SUCCESS) {
        return nullptr;
    }
    Operation operation(made);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    return cublasLtMatmulDescSetAttribute(made, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof(transposed)) == CUBLAS_STATUS_SUCCESS
               ? std::move(operation)
               : nullptr;
}

Layout make_layout(int width, int n, int stride) {
    cublasLtMatrixLayout_t made = nullptr;
    cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, static_cast<uint64_t>(width),
                               static_cast<uint64_t>(n), stride);
    return Layout(made);
}

// Algorithms that need no memory of their own and do not split sums.
Preference make_preference(uint32_t alignment) {
    cublasLtMatmulPreference_t made = nullptr;
    if (cublasLtMatmulPreferenceCreate(&made) != CUBLAS_STATUS_SUCCESS) {
        return nullptr;
    }
    Preference preference(made);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
        return cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)) ==
               CUBLAS_STATUS_SUCCESS;
    };
    const bool taken =
        set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, size_t{0}) &&
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE}) &&
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment) &&
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment) &&
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment) &&
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    return taken ? std::move(preference) : nullptr;
}

uint32_t alignment_of(const LargeProduct& product) {
    constexpr uintptr_t kMost = 256;  // more is worth nothing to cuBLAS
    const uintptr_t bits = reinterpret_cast<uintptr_t>(product.w) |
                           reinterpret_cast<uintptr_t>(product.x) |
                           reinterpret_cast<uintptr_t>(product.y) | kMost;
    return static_cast<uint32_t>(bits & (~bits + 1));
}

// What decides the order in which an algorithm adds: the shape that a matrix instruction
// multiplies, and into how many parts the inner dimension is split.
struct SumOrder {
    uint16_t inner_shape = 0;
    int32_t n_splits = 0;

    bool operator==(const SumOrder&) const = default;
};

SumOrder sum_order(const cublasLtMatmulAlgo_t& algorithm) {
    SumOrder order;
    const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto& value) {
        size_t written = 0;
        cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value),
                                             &written);
    };
    get(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, order.inner_shape);
    get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, order.n_splits);
    return order;
}

Event make_event() {
    cudaEvent_t made = nullptr;
    cudaEventCreate(&made);
    return Event(made);
}

}  // namespace

// The algorithms of a shape that add in the same order as cuBLAS's first one, in cuBLAS's order,
// until one is left.
class LargeProducts::Choice {
  public:
    Choice(cublasLtHandle_t blas, const LargeProduct::Shape& s)
        : operation_(make_operation()),
          w_(make_layout(s.n_in, s.n_out, s.w_stride)),
          x_(make_layout(s.n_in, s.n, s.x_stride)),
          y_(make_layout(s.n_out, s.n, s.y_stride)) {
        constexpr int kMost = 8;
        const Preference preference = make_preference(s.alignment);
        if (!operation_ || !w_ || !x_ || !y_ || !preference) {
            return;
        }
        std::array<cublasLtMatmulHeuristicResult_t, kMost> found = {};
        int n = 0;
        if (cublasLtMatmulAlgoGetHeuristic(blas, operation_.get(), w_.get(), x_.get(), y_.get(),
                                           y_.get(), preference.get(), kMost, found.data(),
                                           &n) != CUBLAS_STATUS_SUCCESS) {
            return;
        }
        for (const cublasLtMatmulHeuristicResult_t& result :
             std::span(found).first(static_cast<size_t>(n))) {
            if (sum_order(result.algo) == sum_order(found[0].algo)) {
                candidates_.push_back({result.algo});
            }
        }
    }

    bool multiply(cublasLtHandle_t blas, const LargeProduct& product, cudaStream_t stream) {
        take_times();
        while (!candidates_.empty()) {
            const bool tries = n_tried_ < kRounds * candidates_.size() && candidates_.size() > 1;
            const size_t i = tries ? n_tried_ % candidates_.size() : 0;
            if (tries ? run_timed(blas, product, stream, i) : run(blas, product, stream, i)) {
                return true;
            }
            // What was timed so far counts by number.
            candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(i));
            trials_.clear();
            n_tried_ = 0;
        }
        return false;
    }

  private:
    static constexpr size_t kRounds = 3;  // the first one may load kernels

    struct Candidate {
        cublasLtMatmulAlgo_t algorithm;
        float ms = std::numeric_limits<float>::infinity();  // the least so far
    };
    struct Trial {
        size_t candidate;
        Event begin, end;
    };

    bool run(cublasLtHandle_t blas, const LargeProduct& product, cudaStream_t stream, size_t i) {
        constexpr float kZero = 0;
        return cublasLtMatmul(blas, operation_.get(), &product.factor, product.w, w_.get(),
                              product.x, x_.get(), &kZero, product.y, y_.get(), product.y, y_.get(),
                              &candidates_[i].algorithm, nullptr, 0,
                              stream) == CUBLAS_STATUS_SUCCESS;
    }

    bool run_timed(cublasLtHandle_t blas, const LargeProduct& product, cudaStream_t stream,
                   size_t i) {
        ++n_tried_;
        Trial trial = {i, make_event(), make_event()};
        const bool timed =
            trial.begin && trial.end && cudaEventRecord(trial.begin.get(), stream) == cudaSuccess;
        if (!run(blas, product, stream, i)) {
            return false;
        }
        if (timed && cudaEventRecord(trial.end.get(), stream) == cudaSuccess) {
            trials_.push_back(std::move(trial));
        }
        return true;
    }

    // Notes the times of trials that have ended; when all have, only the fastest stays.
    void take_times() {
        if (trials_.empty()) {
            return;
        }
        std::erase_if(trials_, [&](const Trial& trial) {
            float ms = 0;
            const bool ended =
                cudaEventQuery(trial.end.get()) == cudaSuccess &&
                cudaEventElapsedTime(&ms, trial.begin.get(), trial.end.get()) == cudaSuccess;
            if (ended) {
                Candidate& candidate = candidates_[trial.candidate];
                candidate.ms = std::min(candidate.ms, ms);
            }
            return ended;
        });
        cudaGetLastError();  // an event that has not ended is no failure
        if (trials_.empty() && n_tried_ >= kRounds * candidates_.size()) {
            const auto fastest = std::min_element(
                candidates_.begin(), candidates_.end(),
                [](const Candidate& a, const Candidate& b) { return a.ms < b.ms; });
            candidates_ = {*fastest};
        }
    }

    Operation operation_;
    Layout w_, x_, y_;
    std::vector<Candidate> candidates_;
    std::vector<Trial> trials_;
    size_t n_tried_ = 0;
};

LargeProducts::LargeProducts(cublasHandle_t blas, cudaStream_t stream)
    // A handle of cuBLAS is one of cublasLt too, says its manual.
    : blas_(reinterpret_cast<cublasLtHandle_t>(blas)), stream_(stream) {}

LargeProducts::~LargeProducts() = default;

bool LargeProducts::suits(const LargeProduct::Shape& shape) {
    constexpr double kOperations = 5e10;  // less than a tenth of a millisecond on an H200
    return 2.0 * shape.n * shape.n_in * shape.n_out >= kOperations;
}

bool LargeProducts::multiply(const LargeProduct& product) {
    LargeProduct::Shape shape = product.shape;
    shape.alignment = alignment_of(product);
    std::unique_ptr<Choice>& choice = choices_[shape];
    if (choice == nullptr) {
        choice = std::make_unique<Choice>(blas_, shape);
    }
    return choice->multiply(blas_, product, stream_);
}

}  // namespace flux2::cuda
