#include "compute/shared_work.hpp"

#include <algorithm>

namespace flux2 {

// A quarter of a thread's share of what is left, so that a core of a third of the others' speed
// does not hold them up. Small pieces use caches worse: none is less than an eighth of a share of
// all.
WorkPiece SharedWork::take(int64_t n, int n_threads, const PieceSize& size) {
    constexpr int64_t kPartOfAShare = 4;
    constexpr int64_t kLeastPartOfAShare = 8;
    const int64_t least = std::clamp(n / (kLeastPartOfAShare * n_threads), size.least, size.most);
    int64_t begin = next_;
    int64_t end = begin;
    do {
        const int64_t left = n - begin;
        const int64_t wanted = std::clamp(left / (kPartOfAShare * n_threads), least, size.most);
        end = begin + std::min(wanted, left);
    } while (end > begin && !next_.compare_exchange_weak(begin, end));
    return {begin, end};
}

}  // namespace flux2
