#include "base/shape.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

namespace flux2 {

Shape::Shape(std::initializer_list<int64_t> sizes) : n_dims(static_cast<int>(sizes.size())) {
    std::copy(sizes.begin(), sizes.end(), ne.begin());
}

bool same_sizes(const Shape& a, const Shape& b) {
    const auto squeezed = [](const Shape& shape) {
        std::vector<int64_t> sizes;
        std::copy_if(shape.ne.begin(), shape.ne.end(), std::back_inserter(sizes),
                     [](int64_t n) { return n != 1; });
        return sizes;
    };
    return squeezed(a) == squeezed(b);
}

std::string to_string(const Shape& shape) {
    std::string text = "[";
    for (size_t i = 0; i < static_cast<size_t>(shape.n_dims); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(shape.ne[i]);
    }
    return text + "]";
}

}  // namespace flux2
