// In which batches pictures are trained. An epoch shows every picture as often as its source
// repeats it; pictures of a batch have one source and one size.
#pragma once

#include "train/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flux2 {

class DataOrder {
  public:
    // Borrows nothing.
    DataOrder(const std::vector<DatasetSource>& sources,
              const std::vector<DatasetPicture>& pictures, uint64_t seed);

    int64_t batches_per_epoch() const { return batches_per_epoch_; }
    // The pictures of batch 0, 1, ... of the run. Epochs differ in their order; the order of each
    // follows from seed and epoch alone.
    const std::vector<size_t>& batch(int64_t index);

  private:
    struct Group {
        std::vector<size_t> pictures;  // with repeats
        size_t batch_size = 1;
    };
    void order_epoch(int64_t epoch);

    std::vector<Group> groups_;
    uint64_t seed_;
    int64_t batches_per_epoch_ = 0;
    int64_t epoch_ = -1;  // whose batches these are
    std::vector<std::vector<size_t>> batches_;
};

}  // namespace flux2
