#include "train/data_order.hpp"

#include "train/counted_random.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace flux2 {
namespace {

// Fisher and Yates's shuffle; `next` gives the next random number.
template <typename T, typename Next>
void shuffle(std::vector<T>& values, const Next& next) {
    for (size_t n = values.size(); n > 1; --n) {
        std::swap(values[n - 1], values[static_cast<size_t>(next() % n)]);
    }
}

}  // namespace

DataOrder::DataOrder(const std::vector<DatasetSource>& sources,
                     const std::vector<DatasetPicture>& pictures, uint64_t seed)
    : seed_(seed) {
    std::map<std::tuple<size_t, int, int>, Group> groups;
    for (size_t i = 0; i < pictures.size(); ++i) {
        const DatasetPicture& picture = pictures[i];
        const DatasetSource& source = sources[picture.source];
        Group& group = groups[{picture.source, picture.trained.width, picture.trained.height}];
        group.batch_size = static_cast<size_t>(source.batch_size);
        group.pictures.insert(group.pictures.end(), static_cast<size_t>(source.num_repeats), i);
    }
    for (auto& [key, group] : groups) {
        const size_t n = (group.pictures.size() + group.batch_size - 1) / group.batch_size;
        batches_per_epoch_ += static_cast<int64_t>(n);
        groups_.push_back(std::move(group));
    }
}

void DataOrder::order_epoch(int64_t epoch) {
    uint64_t n_drawn = 0;
    const auto next = [&] {
        return random_bits(seed_, RandomUse::order, static_cast<uint64_t>(epoch), n_drawn++);
    };
    batches_.clear();
    for (const Group& group : groups_) {
        std::vector<size_t> pictures = group.pictures;
        shuffle(pictures, next);
        for (size_t begin = 0; begin < pictures.size(); begin += group.batch_size) {
            const size_t end = std::min(begin + group.batch_size, pictures.size());
            batches_.emplace_back(pictures.begin() + static_cast<std::ptrdiff_t>(begin),
                                  pictures.begin() + static_cast<std::ptrdiff_t>(end));
        }
    }
    shuffle(batches_, next);
    epoch_ = epoch;
}

const std::vector<size_t>& DataOrder::batch(int64_t index) {
    if (index / batches_per_epoch_ != epoch_) {
        order_epoch(index / batches_per_epoch_);
    }
    return batches_[static_cast<size_t>(index % batches_per_epoch_)];
}

}  // namespace flux2
