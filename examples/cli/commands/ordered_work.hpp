// Numbered pieces of work on several threads, with results that are taken in the order of the
// pieces, as if there were one thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>

namespace flux2::cli {

class OrderedWork {
  public:
    using Work = std::function<void(size_t worker, size_t piece)>;

    // At least one worker.
    OrderedWork(size_t n_pieces, size_t n_workers);

    // Calls `work` for all pieces; each worker takes the next one when it is ready. One worker is
    // the calling thread. Throws what the first piece in their order threw, after the results of
    // those before it, and of its own before that, were taken; none of later pieces are.
    void run(const Work& work);

    // For `work`: takes a result, now or when those of all pieces before have been taken, on any
    // of the threads, one at a time. What `take` throws counts as thrown by the piece.
    void hand_over(size_t piece, std::function<void()> take);
    // Whether all pieces before this one are over.
    bool is_next(size_t piece) const;
    // Whether nothing of this piece will be taken any more, since one before it has failed, or
    // taking a result of its own.
    bool is_useless(size_t piece) const;

  private:
    struct Piece {
        std::deque<std::function<void()>> results;
        bool ended = false;
        std::exception_ptr error;
    };

    void work_on(size_t worker, const Work& work);
    bool begin_piece(size_t& piece);
    void end_piece(size_t piece, const std::exception_ptr& error);
    void take_results();

    size_t n_pieces_;
    size_t n_workers_;
    mutable std::mutex mutex_;
    std::condition_variable progressed_;
    std::map<size_t, Piece> open_;  // begun, and not all taken
    size_t n_begun_ = 0;
    size_t n_taken_ = 0;         // pieces of which all results were taken
    size_t failed_ = n_pieces_;  // the first piece that threw
    std::exception_ptr error_;   // of the first piece in order, once all before it were taken
};

}  // namespace flux2::cli
