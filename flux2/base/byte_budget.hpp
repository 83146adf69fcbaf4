// Memory that threads share: each takes what it needs for a while, and waits until there is enough.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace flux2 {

class ByteBudget {
  public:
    explicit ByteBudget(uint64_t bytes) : bytes_(bytes) {}

    // Gives the bytes back when it ends; borrows the budget.
    class Share {
      public:
        Share(ByteBudget& budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {
            std::unique_lock lock(budget_.mutex_);
            budget_.returned_.wait(lock, [&] { return budget_.has_room_for(bytes_); });
            budget_.taken_ += bytes_;
        }
        ~Share() {
            {
                const std::lock_guard lock(budget_.mutex_);
                budget_.taken_ -= bytes_;
            }
            budget_.returned_.notify_all();
        }
        Share(const Share&) = delete;
        Share& operator=(const Share&) = delete;

      private:
        ByteBudget& budget_;
        uint64_t bytes_;
    };

    // Waits until the bytes fit beside what other threads have; more than all of the budget until
    // no other thread has any. A thread must not take twice.
    [[nodiscard]] Share take(uint64_t bytes) { return Share(*this, bytes); }
    uint64_t bytes() const { return bytes_; }

  private:
    bool has_room_for(uint64_t bytes) const {
        return taken_ == 0 || (bytes <= bytes_ && taken_ <= bytes_ - bytes);
    }

    uint64_t bytes_;
    uint64_t taken_ = 0;
    std::mutex mutex_;
    std::condition_variable returned_;
};

}  // namespace flux2
