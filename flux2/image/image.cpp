#include "image/image.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace flux2 {
namespace {

size_t row_bytes(const Image& image) {
    return static_cast<size_t>(image.width) * 3;
}

const uint8_t* row(const Image& image, int y) {
    return image.rgb.data() + static_cast<size_t>(y) * row_bytes(image);
}

uint8_t* row(Image& image, int y) {
    return image.rgb.data() + static_cast<size_t>(y) * row_bytes(image);
}

void check_sides(int width, int height) {
    check(width > 0 && height > 0 && width <= kMaxImageSide && height <= kMaxImageSide,
          ErrorKind::bad_argument, "a picture of ", width, " x ", height,
          " pixels: both sides must be between 1 and ", kMaxImageSide);
}

Image blank(int width, int height) {
    check_sides(width, height);
    const size_t n = static_cast<size_t>(width) * static_cast<size_t>(height) * 3;
    return {width, height, std::vector<uint8_t>(n)};
}

// Weights are integers with this many bits after the point.

constexpr int kWeightBits = 22;
constexpr int kHalf = 1 << (kWeightBits - 1);

// The input pixels and weights of one output pixel along an axis.
struct Taps {
    int first = 0;
    std::vector<int> weights;
};

double sinc(double x) {
    return x == 0.0 ? 1.0 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x);
}

double lanczos3(double x) {
    return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3.0) : 0.0;
}

// One per output pixel, as Pillow computes them (python-pillow/Pillow src/libImaging/Resample.c).
std::vector<Taps> lanczos_taps(int in, int out) {
    const double scale = static_cast<double>(in) / out;
    const double filter_scale = std::max(scale, 1.0);
    const double support = 3.0 * filter_scale;
    std::vector<Taps> all(static_cast<size_t>(out));
    std::vector<double> weights;
    for (int o = 0; o < out; o++) {
        const double center = (o + 0.5) * scale;
        const int first = std::max(static_cast<int>(center - support + 0.5), 0);
        const int end = std::min(static_cast<int>(center + support + 0.5), in);
        weights.clear();
        double sum = 0.0;
        for (int x = first; x < end; x++) {
            weights.push_back(lanczos3((x - center + 0.5) / filter_scale));
            sum += weights.back();
        }
        Taps& taps = all[static_cast<size_t>(o)];
        taps.first = first;
        for (const double weight : weights) {
            taps.weights.push_back(
                static_cast<int>(std::lround(weight / sum * (1 << kWeightBits))));
        }
    }
    return all;
}

// A sum of weighted bytes, started at one half. Negative weights may give values outside 0..255.
uint8_t to_byte(int sum) {
    return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

Image resize_width(const Image& image, int width) {
    const std::vector<Taps> taps = lanczos_taps(image.width, width);
    Image result = blank(width, image.height);
    for (int y = 0; y < image.height; y++) {
        uint8_t* out = row(result, y);
        for (const Taps& tap : taps) {
            const uint8_t* in = row(image, y) + static_cast<size_t>(tap.first) * 3;
            int red = kHalf;
            int green = kHalf;
            int blue = kHalf;
            for (const int weight : tap.weights) {
                red += in[0] * weight;
                green += in[1] * weight;
                blue += in[2] * weight;
                in += 3;
            }
            *out++ = to_byte(red);
            *out++ = to_byte(green);
            *out++ = to_byte(blue);
        }
    }
    return result;
}

Image resize_height(const Image& image, int height) {
    const std::vector<Taps> taps = lanczos_taps(image.height, height);
    Image result = blank(image.width, height);
    std::vector<int> sums(row_bytes(image));
    for (int y = 0; y < height; y++) {
        const Taps& tap = taps[static_cast<size_t>(y)];
        std::fill(sums.begin(), sums.end(), kHalf);
        int in_y = tap.first;
        for (const int weight : tap.weights) {
            const uint8_t* in = row(image, in_y++);
            for (size_t i = 0; i < sums.size(); i++) {
                sums[i] += in[i] * weight;
            }
        }
        std::transform(sums.begin(), sums.end(), row(result, y), to_byte);
    }
    return result;
}

}  // namespace

void check_image(const Image& image) {
    check_sides(image.width, image.height);
    const size_t expected = row_bytes(image) * static_cast<size_t>(image.height);
    check(image.rgb.size() == expected, ErrorKind::bad_argument, "a picture of ", image.width,
          " x ", image.height, " pixels has ", image.rgb.size(), " bytes, expected ", expected);
}

Image resize_lanczos(const Image& image, int width, int height) {
    check_image(image);
    check_sides(width, height);
    return resize_height(resize_width(image, width), height);
}

Image center_crop(const Image& image, int width, int height) {
    check_image(image);
    check(width <= image.width && height <= image.height, ErrorKind::bad_argument,
          "cannot crop a picture of ", image.width, " x ", image.height, " pixels to ", width,
          " x ", height);
    return crop(image, {(image.width - width) / 2, (image.height - height) / 2, width, height});
}

Image side_by_side(const std::vector<Image>& images) {
    const Image& first = images.front();
    if (images.size() == 1) {
        return first;
    }
    Image result = blank(first.width * static_cast<int>(images.size()), first.height);
    for (size_t i = 0; i < images.size(); ++i) {
        for (int y = 0; y < first.height; y++) {
            std::copy_n(row(images[i], y), row_bytes(first), row(result, y) + i * row_bytes(first));
        }
    }
    return result;
}

Image crop(const Image& image, const Region& region) {
    check_image(image);
    check(region.x >= 0 && region.y >= 0 && region.right() <= image.width &&
              region.bottom() <= image.height,
          ErrorKind::internal, "a region from ", region.x, ", ", region.y, " to ", region.right(),
          ", ", region.bottom(), " does not lie within ", image.width, " x ", image.height,
          " pixels");
    Image result = blank(region.width, region.height);
    for (int y = 0; y < region.height; y++) {
        std::copy_n(row(image, region.y + y) + static_cast<size_t>(region.x) * 3, row_bytes(result),
                    row(result, y));
    }
    return result;
}

Image extend_edges(const Image& image, const Margins& margins) {
    check_image(image);
    Image result = blank(image.width + margins.left + margins.right,
                         image.height + margins.top + margins.bottom);
    for (int y = 0; y < result.height; y++) {
        const uint8_t* in = row(image, std::clamp(y - margins.top, 0, image.height - 1));
        uint8_t* out = row(result, y);
        for (int x = 0; x < result.width; x++) {
            const int from = std::clamp(x - margins.left, 0, image.width - 1);
            out = std::copy_n(in + static_cast<size_t>(from) * 3, 3, out);
        }
    }
    return result;
}

Image cover(const Image& image, int width, int height) {
    check_image(image);
    const double scale = std::max(static_cast<double>(width) / image.width,
                                  static_cast<double>(height) / image.height);
    const auto scaled = [&](int side, int at_least) {
        return std::max(at_least, static_cast<int>(std::lround(side * scale)));
    };
    const int scaled_width = scaled(image.width, width);
    const int scaled_height = scaled(image.height, height);
    if (scaled_width == image.width && scaled_height == image.height) {
        return center_crop(image, width, height);
    }
    return center_crop(resize_lanczos(image, scaled_width, scaled_height), width, height);
}

namespace {

// Pixels along a line of a picture, and the means of any of them.
class LineMeans {
  public:
    // From this byte on, `stride` bytes from pixel to pixel.
    LineMeans(const uint8_t* first, int n, size_t stride) : n_(n), sums_(3) {
        for (size_t i = 0; i < static_cast<size_t>(n); i++) {
            for (size_t c = 0; c < 3; c++) {
                sums_.push_back(sums_[3 * i + c] + first[i * stride + c]);
            }
        }
    }

    // Of the pixels up to `reach` before and after one, as far as there are any.
    void write(int pixel, int reach, uint8_t* out) const {
        const auto from = static_cast<size_t>(std::max(0, pixel - reach));
        const auto until = static_cast<size_t>(std::min(n_, pixel + reach + 1));
        for (size_t c = 0; c < 3; c++) {
            const int64_t sum = sums_[3 * until + c] - sums_[3 * from + c];
            out[c] = static_cast<uint8_t>(sum / static_cast<int64_t>(until - from));
        }
    }

  private:
    int n_;
    std::vector<int64_t> sums_;
};

}  // namespace

Image extend_blurred(const Image& image, const Margins& margins) {
    Image result = extend_edges(image, margins);
    const auto reach = [](int distance) { return distance / 4; };
    const auto at = [&](int x, int y) { return row(result, y) + static_cast<size_t>(x) * 3; };
    // Above and below the picture first, then whole columns left and right of it.
    const int last_row = margins.top + image.height - 1;
    const LineMeans above(row(image, 0), image.width, 3);
    const LineMeans below(row(image, image.height - 1), image.width, 3);
    for (int x = 0; x < image.width; x++) {
        for (int y = 0; y < margins.top; y++) {
            above.write(x, reach(margins.top - y), at(margins.left + x, y));
        }
        for (int y = last_row + 1; y < result.height; y++) {
            below.write(x, reach(y - last_row), at(margins.left + x, y));
        }
    }
    const int last_column = margins.left + image.width - 1;
    const LineMeans left(at(margins.left, 0), result.height, row_bytes(result));
    const LineMeans right(at(last_column, 0), result.height, row_bytes(result));
    for (int y = 0; y < result.height; y++) {
        for (int x = 0; x < margins.left; x++) {
            left.write(y, reach(margins.left - x), at(x, y));
        }
        for (int x = last_column + 1; x < result.width; x++) {
            right.write(y, reach(x - last_column), at(x, y));
        }
    }
    return result;
}

namespace {

// The size of a picture whose longer side is scaled down to at most max_side.
ImageSize with_sides_of(const Image& image, int max_side) {
    const int64_t longer = std::max(image.width, image.height);
    if (longer <= max_side) {
        return {image.width, image.height};
    }
    return {static_cast<int>(int64_t{image.width} * max_side / longer),
            static_cast<int>(int64_t{image.height} * max_side / longer)};
}

// The size to which a reference picture is scaled down before cropping; its own size when it is
// small enough.
ImageSize shrunk_size(const Image& image, int64_t max_pixels, int max_side) {
    constexpr int kMaxAspect = 8;
    check_image(image);
    check(max_pixels > 0, ErrorKind::bad_argument, "reference pictures are limited to ", max_pixels,
          " pixels, expected more than none");
    const int width = image.width;
    const int height = image.height;
    check(std::min(width, height) >= kMinSide, ErrorKind::bad_argument, "a reference picture of ",
          width, " x ", height, " pixels is too small: both sides must be at least ", kMinSide);
    check(std::max(width, height) <= kMaxAspect * std::min(width, height), ErrorKind::bad_argument,
          "a reference picture of ", width, " x ", height,
          " pixels is too long: one side may be at most ", kMaxAspect, " times the other; crop it");
    const ImageSize fitting = with_sides_of(image, max_side);
    const int64_t pixels = int64_t{fitting.width} * fitting.height;
    if (pixels <= max_pixels) {
        return fitting;
    }
    const double scale = std::sqrt(static_cast<double>(max_pixels) / static_cast<double>(pixels));
    const ImageSize shrunk = {static_cast<int>(fitting.width * scale),
                              static_cast<int>(fitting.height * scale)};
    check(std::min(shrunk.width, shrunk.height) >= kImageGrid, ErrorKind::bad_argument,
          "a reference picture of ", width, " x ", height, " pixels has no room in ", max_pixels,
          " pixels; allow more");
    return shrunk;
}

}  // namespace

ImageSize fitted_size(const Image& image, int64_t max_pixels, int max_side) {
    const ImageSize shrunk = shrunk_size(image, max_pixels, max_side);
    return {shrunk.width / kImageGrid * kImageGrid, shrunk.height / kImageGrid * kImageGrid};
}

Image fit_reference(const Image& image, int64_t max_pixels, int max_side) {
    const ImageSize shrunk = shrunk_size(image, max_pixels, max_side);
    const ImageSize fitted = fitted_size(image, max_pixels, max_side);
    if (shrunk.width == image.width && shrunk.height == image.height) {
        return center_crop(image, fitted.width, fitted.height);
    }
    return center_crop(resize_lanczos(image, shrunk.width, shrunk.height), fitted.width,
                       fitted.height);
}

HostTensor to_planes(const Image& image) {
    check_image(image);
    HostTensor planes({image.width, image.height, 3, 1});
    const size_t n = planes.data.size() / 3;
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < 3; c++) {
            planes.data[c * n + i] = 2.0f * image.rgb[3 * i + c] / 255.0f - 1.0f;
        }
    }
    return planes;
}

Image from_planes(const HostTensor& planes) {
    const auto [width, height, n_planes, n_images] = planes.ne;
    check(n_planes == 3 && n_images == 1 && width > 0 && height > 0 && width <= kMaxImageSide &&
              height <= kMaxImageSide,
          ErrorKind::internal, "a tensor [", width, ", ", height, ", ", n_planes, ", ", n_images,
          "] is no picture");
    Image image = blank(static_cast<int>(width), static_cast<int>(height));
    const size_t n = image.rgb.size() / 3;
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < 3; c++) {
            const float value = std::clamp(planes.data[c * n + i], -1.0f, 1.0f);
            if (std::isnan(value)) {
                fail(ErrorKind::backend, "the picture has a value that is not a number at pixel ",
                     i % static_cast<size_t>(width), ", ", i / static_cast<size_t>(width),
                     ": weights or adapters are damaged or too strong, or the device computes "
                     "wrongly; try it without adapters, and on another device");
            }
            image.rgb[3 * i + c] =
                static_cast<uint8_t>(std::nearbyint((value / 2.0f + 0.5f) * 255.0f));
        }
    }
    return image;
}

}  // namespace flux2
