#include "commands/ordered_work.hpp"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

namespace flux2::cli {
namespace {

// Pieces per worker that may be begun before the results of the first one were taken: pictures
// that wait take memory.
constexpr size_t kMostAhead = 2;

}  // namespace

OrderedWork::OrderedWork(size_t n_pieces, size_t n_workers)
    : n_pieces_(n_pieces), n_workers_(n_workers) {}

void OrderedWork::run(const Work& work) {
    std::vector<std::future<void>> others;
    for (size_t worker = 1; worker < n_workers_; ++worker) {
        // Where no thread can be started, get() finds no work left.
        others.push_back(std::async(std::launch::async | std::launch::deferred,
                                    [this, worker, &work] { work_on(worker, work); }));
    }
    work_on(0, work);
    for (std::future<void>& other : others) {
        other.get();
    }
    if (error_) {
        std::rethrow_exception(error_);
    }
}

void OrderedWork::work_on(size_t worker, const Work& work) {
    for (size_t piece = 0; begin_piece(piece);) {
        std::exception_ptr error;
        try {
            work(worker, piece);
        } catch (...) {
            error = std::current_exception();
        }
        end_piece(piece, error);
    }
}

// Returns false when there is none to begin.
bool OrderedWork::begin_piece(size_t& piece) {
    std::unique_lock lock(mutex_);
    const auto is_over = [&] { return n_begun_ >= std::min(n_pieces_, failed_); };
    progressed_.wait(lock,
                     [&] { return is_over() || n_begun_ < n_taken_ + kMostAhead * n_workers_; });
    if (is_over()) {
        return false;
    }
    piece = n_begun_++;
    open_[piece];
    return true;
}

void OrderedWork::end_piece(size_t piece, const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    open_[piece].ended = true;
    if (error) {
        open_[piece].error = error;
        failed_ = std::min(failed_, piece);
    }
    take_results();
    progressed_.notify_all();
}

void OrderedWork::hand_over(size_t piece, std::function<void()> take) {
    const std::lock_guard lock(mutex_);
    open_[piece].results.push_back(std::move(take));
    take_results();
}

// Takes what can be taken in order.
void OrderedWork::take_results() {
    while (!error_ && open_.contains(n_taken_)) {
        Piece& next = open_[n_taken_];
        while (!next.results.empty()) {
            const std::function<void()> take = std::move(next.results.front());
            next.results.pop_front();
            try {
                take();
            } catch (...) {
                error_ = std::current_exception();
                failed_ = n_taken_;
                return;
            }
        }
        if (!next.ended) {
            return;
        }
        error_ = next.error;
        open_.erase(n_taken_);
        ++n_taken_;
    }
}

bool OrderedWork::is_next(size_t piece) const {
    const std::lock_guard lock(mutex_);
    return piece == n_taken_;
}

bool OrderedWork::is_useless(size_t piece) const {
    const std::lock_guard lock(mutex_);
    return piece > failed_ || (error_ && piece >= failed_);
}

}  // namespace flux2::cli
