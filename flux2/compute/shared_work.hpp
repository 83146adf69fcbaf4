// What the threads that run a node of ours share. They take its work in pieces until none is left,
// so that cores of different speed, or ones that other programs use as well, end at the same time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace flux2 {

// Items [begin, end) of a node's work.
struct WorkPiece {
    int64_t begin, end;
};

// How many items a thread takes at once.
struct PieceSize {
    int64_t least = 1;
    int64_t most = std::numeric_limits<int64_t>::max();
};

class SharedWork {
  public:
    // Raised by a thread that found no memory for its part.
    std::atomic<bool> lacks_memory = false;

    // The next items of n; empty when none are left. Where pieces end depends on the arguments
    // only, not on who takes them when. They become smaller towards the end.
    WorkPiece take(int64_t n, int n_threads, const PieceSize& size);

    // Each of the threads calls this once when it takes no more, before they wait for each other.
    // The last one makes the object ready for the next node.
    void leave(int n_threads) {
        if (++n_gone_ == n_threads) {
            n_gone_ = 0;
            next_ = 0;
        }
    }

  private:
    static constexpr size_t kCacheLine = 64;
    alignas(kCacheLine) std::atomic<int64_t> next_ = 0;
    std::atomic<int> n_gone_ = 0;
};

// For functions of nodes, whose last argument is `work`: calls f(begin, end) for pieces of n items,
// each in one of the threads that call this. At most once in a function.
template <typename F>
void share_pieces(void* work, int64_t n, int n_threads, const PieceSize& size, const F& f) {
    auto& shared = *static_cast<SharedWork*>(work);
    for (WorkPiece piece = shared.take(n, n_threads, size); piece.begin < piece.end;
         piece = shared.take(n, n_threads, size)) {
        f(piece.begin, piece.end);
    }
}

// The same with f(i) for every item.
template <typename F>
void share_items(void* work, int64_t n, int n_threads, const F& f) {
    share_pieces(work, n, n_threads, {}, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            f(i);
        }
    });
}

}  // namespace flux2
