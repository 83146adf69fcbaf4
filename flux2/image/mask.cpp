#include "image/mask.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

namespace flux2 {
namespace {

size_t index_of(const Mask& mask, int x, int y) {
    return static_cast<size_t>(y) * static_cast<size_t>(mask.width) + static_cast<size_t>(x);
}

Region widened(const Region& region, int pixels, const Mask& within) {
    const int left = std::max(0, region.x - pixels);
    const int top = std::max(0, region.y - pixels);
    return {left, top, std::min(within.width, region.right() + pixels) - left,
            std::min(within.height, region.bottom() + pixels) - top};
}

// The first of the values from x - half to x + half of a row in the order of `before`, for each x.
template <typename Before>
class RowExtremes {
  public:
    explicit RowExtremes(const Before& before) : before_(before) {}

    const std::vector<uint8_t>& compute(const uint8_t* row, int width, int half) {
        extremes_.resize(static_cast<size_t>(width));
        candidates_.clear();
        first_ = 0;
        int next = 0;
        for (int x = 0; x < width; ++x) {
            for (; next < std::min(width, x + half + 1); ++next) {
                while (candidates_.size() > first_ &&
                       !before_(row[candidates_.back()], row[next])) {
                    candidates_.pop_back();
                }
                candidates_.push_back(next);
            }
            while (candidates_[first_] < x - half) {
                ++first_;
            }
            extremes_[static_cast<size_t>(x)] = row[candidates_[first_]];
        }
        return extremes_;
    }

  private:
    const Before& before_;
    std::vector<uint8_t> extremes_;
    // Positions in the window whose values come in this order; those before first_ have left it.
    std::vector<int> candidates_;
    size_t first_ = 0;
};

// The first value within a disk around each pixel of the region, in the order of `before`; other
// pixels stay.
template <typename Before>
Mask disk_extremes(const Mask& mask, const Region& region, int radius, const Before& before) {
    Mask result = mask;
    RowExtremes<Before> extremes(before);
    for (int y = region.y; y < region.bottom(); ++y) {
        uint8_t* out = &result.values[index_of(mask, 0, y)];
        for (int dy = std::max(-radius, -y); dy <= std::min(radius, mask.height - 1 - y); ++dy) {
            const int half = static_cast<int>(std::sqrt(radius * radius - dy * dy));
            const std::vector<uint8_t>& row =
                extremes.compute(&mask.values[index_of(mask, 0, y + dy)], mask.width, half);
            for (int x = region.x; x < region.right(); ++x) {
                out[x] = before(row[static_cast<size_t>(x)], out[x]) ? row[static_cast<size_t>(x)]
                                                                     : out[x];
            }
        }
    }
    return result;
}

// The means of 2 * radius + 1 values along lines of a picture; the values at its border continue.
void average_lines(std::vector<float>& values, size_t n_lines, size_t line_stride, size_t length,
                   size_t stride, int radius) {
    std::vector<double> line(length);
    const auto last = static_cast<std::ptrdiff_t>(length) - 1;
    const auto at = [&](std::ptrdiff_t i) {
        return line[static_cast<size_t>(std::clamp<std::ptrdiff_t>(i, 0, last))];
    };
    for (size_t l = 0; l < n_lines; ++l) {
        float* first = &values[l * line_stride];
        double sum = 0;
        for (size_t i = 0; i < length; ++i) {
            line[i] = static_cast<double>(first[i * stride]);
        }
        for (std::ptrdiff_t i = -radius; i <= radius; ++i) {
            sum += at(i);
        }
        for (size_t i = 0; i < length; ++i) {
            first[i * stride] = static_cast<float>(sum / (2 * radius + 1));
            const auto here = static_cast<std::ptrdiff_t>(i);
            sum += at(here + radius + 1) - at(here - radius);
        }
    }
}

}  // namespace

void check_mask(const Mask& mask) {
    check(mask.width > 0 && mask.height > 0 && mask.width <= kMaxImageSide &&
              mask.height <= kMaxImageSide,
          ErrorKind::bad_argument, "a mask of ", mask.width, " x ", mask.height,
          " pixels: both sides must be between 1 and ", kMaxImageSide);
    const size_t expected = static_cast<size_t>(mask.width) * static_cast<size_t>(mask.height);
    check(mask.values.size() == expected, ErrorKind::bad_argument, "a mask of ", mask.width, " x ",
          mask.height, " pixels has ", mask.values.size(), " values, expected ", expected);
}

Mask inverted(Mask mask) {
    check_mask(mask);
    for (uint8_t& value : mask.values) {
        value = static_cast<uint8_t>(255 - value);
    }
    return mask;
}

Mask grown(const Mask& mask, int radius) {
    check_mask(mask);
    const Region covered = covered_region(mask);
    if (radius == 0 || covered.is_empty()) {
        return mask;
    }
    return radius > 0
               ? disk_extremes(mask, widened(covered, radius, mask), radius, std::greater<>())
               : disk_extremes(mask, covered, -radius, std::less<>());
}

Mask blurred(const Mask& mask, int pixels) {
    check_mask(mask);
    const Region covered = covered_region(mask);
    if (pixels <= 0 || covered.is_empty()) {
        return mask;
    }
    // Two means after each other make a slope; their radii add up to the whole reach.
    const Region region = widened(covered, pixels, mask);
    const Mask part = crop(mask, region);
    std::vector<float> values(part.values.begin(), part.values.end());
    const auto width = static_cast<size_t>(region.width);
    const auto height = static_cast<size_t>(region.height);
    for (const int radius : {pixels / 2, pixels - pixels / 2}) {
        average_lines(values, height, width, width, 1, radius);
        average_lines(values, width, 1, height, width, radius);
    }
    Mask result = mask;
    for (int y = 0; y < region.height; ++y) {
        for (int x = 0; x < region.width; ++x) {
            result.values[index_of(mask, region.x + x, region.y + y)] =
                static_cast<uint8_t>(std::lround(values[index_of(part, x, y)]));
        }
    }
    return result;
}

Mask softened_inside(const Mask& mask, int pixels) {
    if (pixels <= 0) {
        check_mask(mask);
        return mask;
    }
    const int reach = pixels / 2;
    Mask soft = blurred(grown(mask, -(pixels - reach)), reach);
    // What has no inside at this width vanished when it was narrowed.
    const Mask wide = grown(grown(mask, -(pixels - reach)), pixels - reach);
    for (size_t i = 0; i < mask.values.size(); ++i) {
        const bool is_narrow = mask.values[i] > wide.values[i];
        soft.values[i] = is_narrow ? mask.values[i] : std::min(soft.values[i], mask.values[i]);
    }
    return soft;
}

Region covered_region(const Mask& mask) {
    int left = mask.width;
    int right = 0;
    int top = mask.height;
    int bottom = 0;
    for (int y = 0; y < mask.height; ++y) {
        const auto begin = mask.values.begin() + static_cast<std::ptrdiff_t>(index_of(mask, 0, y));
        const auto end = begin + mask.width;
        const auto is_set = [](uint8_t value) { return value > 0; };
        const auto first = std::find_if(begin, end, is_set);
        if (first == end) {
            continue;
        }
        const auto after_last =
            std::find_if(std::make_reverse_iterator(end), std::make_reverse_iterator(begin), is_set)
                .base();
        left = std::min(left, static_cast<int>(first - begin));
        right = std::max(right, static_cast<int>(after_last - begin));
        top = std::min(top, y);
        bottom = y + 1;
    }
    return bottom == 0 ? Region{} : Region{left, top, right - left, bottom - top};
}

std::vector<float> mask_cells(const Mask& mask, const Region& region, ImageSize inner, int w,
                              int h) {
    // The pixels of the mask that a cell shows: from the first to before the second.
    const auto pixels_of = [](int cell, int begin, int length, int inner_length) {
        const double scale = static_cast<double>(length) / inner_length;
        const int from = static_cast<int>(cell * kImageGrid * scale);
        const int until = static_cast<int>(std::ceil((cell + 1) * kImageGrid * scale));
        return std::pair(begin + std::min(from, length - 1), begin + std::min(until, length));
    };
    std::vector<float> cells;
    cells.reserve(static_cast<size_t>(w) * static_cast<size_t>(h));
    for (int cy = 0; cy < h; ++cy) {
        const auto [top, bottom] = pixels_of(cy, region.y, region.height, inner.height);
        for (int cx = 0; cx < w; ++cx) {
            const auto [left, right] = pixels_of(cx, region.x, region.width, inner.width);
            uint8_t largest = 0;
            for (int y = top; y < bottom; ++y) {
                const uint8_t* row = &mask.values[index_of(mask, 0, y)];
                largest = std::max(largest, *std::max_element(row + left, row + right));
            }
            cells.push_back(static_cast<float>(largest) / 255.0f);
        }
    }
    return cells;
}

Mask crop(const Mask& mask, const Region& region) {
    Mask result{region.width, region.height, {}};
    result.values.reserve(static_cast<size_t>(region.width) * static_cast<size_t>(region.height));
    for (int y = region.y; y < region.bottom(); ++y) {
        const auto row =
            mask.values.begin() + static_cast<std::ptrdiff_t>(index_of(mask, region.x, y));
        result.values.insert(result.values.end(), row, row + region.width);
    }
    return result;
}

}  // namespace flux2
