#include "image/colour_match.hpp"

#include "base/check.hpp"
#include "image/image.hpp"
#include "image/mask.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace flux2 {
namespace {

using Colour = std::array<float, 3>;

uint8_t to_byte(float value) {
    return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0f, 255.0f)));
}

void check_same_size(const Image& a, const Image& b) {
    check_image(a);
    check_image(b);
    check(a.width == b.width && a.height == b.height, ErrorKind::internal, "pictures of ", a.width,
          " x ", a.height, " and ", b.width, " x ", b.height, " pixels have no pixels in common");
}

// 1 for equal colours, a quarter where the largest difference is `scale`, soon nothing beyond.
double likeness(const std::array<double, 3>& difference, double scale) {
    double largest = 0;
    for (const double d : difference) {
        largest = std::max(largest, std::abs(d));
    }
    const double x = largest / scale;
    return 1.0 / ((1.0 + x * x) * (1.0 + x * x));
}

// ---- One gain and offset per channel ----

struct Line {
    double gain = 1, offset = 0;

    double operator()(double x) const { return gain * x + offset; }
};
using Lines = std::array<Line, 3>;

// Sums for a weighted least-squares fit of y = gain * x + offset.
struct LineSums {
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;

    void add(double weight, double from, double to) {
        w += weight;
        x += weight * from;
        y += weight * to;
        xx += weight * from * from;
        xy += weight * from * to;
    }

    // With too little contrast for a gain, an offset alone.
    Line fit() const {
        constexpr double kLeastVariance = 25;
        constexpr double kLeastGain = 0.7;
        constexpr double kMostGain = 1.4;
        const double variance = xx / w - (x / w) * (x / w);
        const double covariance = xy / w - (x / w) * (y / w);
        const double gain = variance < kLeastVariance
                                ? 1.0
                                : std::clamp(covariance / variance, kLeastGain, kMostGain);
        return {gain, y / w - gain * x / w};
    }
};

// ---- A smooth field of colours ----

// Colours with weights 0..1 on a grid.
struct Field {
    int width = 0, height = 0;
    std::vector<Colour> colours;
    std::vector<float> weights;

    Field(int w, int h)
        : width(w),
          height(h),
          colours(static_cast<size_t>(w) * static_cast<size_t>(h)),
          weights(colours.size()) {}

    size_t index(int x, int y) const {
        return static_cast<size_t>(std::clamp(y, 0, height - 1)) * static_cast<size_t>(width) +
               static_cast<size_t>(std::clamp(x, 0, width - 1));
    }

    // Between the centres of cells.
    Colour at(float x, float y) const {
        const float left = std::floor(x - 0.5f);
        const float top = std::floor(y - 0.5f);
        const float right_share = x - 0.5f - left;
        const float bottom_share = y - 0.5f - top;
        Colour sum = {};
        for (const int dy : {0, 1}) {
            for (const int dx : {0, 1}) {
                const float share = (dx == 1 ? right_share : 1.0f - right_share) *
                                    (dy == 1 ? bottom_share : 1.0f - bottom_share);
                const Colour& colour =
                    colours[index(static_cast<int>(left) + dx, static_cast<int>(top) + dy)];
                for (size_t c = 0; c < 3; ++c) {
                    sum[c] += share * colour[c];
                }
            }
        }
        return sum;
    }
};

// The weighted means of 2 x 2 cells; their weights add up, to 1 at most.
Field halved(const Field& fine) {
    Field coarse((fine.width + 1) / 2, (fine.height + 1) / 2);
    for (int y = 0; y < fine.height; ++y) {
        for (int x = 0; x < fine.width; ++x) {
            const size_t from = fine.index(x, y);
            const size_t to = coarse.index(x / 2, y / 2);
            coarse.weights[to] += fine.weights[from];
            for (size_t c = 0; c < 3; ++c) {
                coarse.colours[to][c] += fine.weights[from] * fine.colours[from][c];
            }
        }
    }
    for (size_t i = 0; i < coarse.weights.size(); ++i) {
        for (float& value : coarse.colours[i]) {
            value = coarse.weights[i] > 0 ? value / coarse.weights[i] : 0.0f;
        }
        coarse.weights[i] = std::min(coarse.weights[i], 1.0f);
    }
    return coarse;
}

// Fills cells of little weight from a coarser field, which is filled in the same way.
void fill(Field& field) {
    if (field.width == 1 && field.height == 1) {
        return;
    }
    Field coarse = halved(field);
    fill(coarse);
    for (int y = 0; y < field.height; ++y) {
        for (int x = 0; x < field.width; ++x) {
            const size_t i = field.index(x, y);
            const Colour around =
                coarse.at((static_cast<float>(x) + 0.5f) / 2, (static_cast<float>(y) + 0.5f) / 2);
            for (size_t c = 0; c < 3; ++c) {
                field.colours[i][c] =
                    field.weights[i] * field.colours[i][c] + (1.0f - field.weights[i]) * around[c];
            }
        }
    }
}

constexpr int kCell = 8;  // pixels

// What kept pixels lack of the source, in cells of kCell pixels.
Field missing_colours(const Image& picture, const Image& source, const Mask& mask) {
    // Autoencoders miss colours by less than this; larger differences are another content.
    constexpr double kScale = 16;
    // A cell with so much kept in it needs no neighbours.
    constexpr float kEnough = kCell * kCell / 4.0f;
    Field field((picture.width + kCell - 1) / kCell, (picture.height + kCell - 1) / kCell);
    for (int y = 0; y < picture.height; ++y) {
        for (int x = 0; x < picture.width; ++x) {
            const size_t pixel = static_cast<size_t>(y) * static_cast<size_t>(picture.width) +
                                 static_cast<size_t>(x);
            if (mask.values[pixel] > 0) {
                continue;
            }
            std::array<double, 3> difference = {};
            for (size_t c = 0; c < 3; ++c) {
                difference[c] = source.rgb[3 * pixel + c] - picture.rgb[3 * pixel + c];
            }
            const auto weight = static_cast<float>(likeness(difference, kScale));
            const size_t cell = field.index(x / kCell, y / kCell);
            field.weights[cell] += weight;
            for (size_t c = 0; c < 3; ++c) {
                field.colours[cell][c] += weight * static_cast<float>(difference[c]);
            }
        }
    }
    for (size_t i = 0; i < field.weights.size(); ++i) {
        for (float& value : field.colours[i]) {
            value = field.weights[i] > 0 ? value / field.weights[i] : 0.0f;
        }
        field.weights[i] = std::min(field.weights[i] / kEnough, 1.0f);
    }
    return field;
}

}  // namespace

bool match_colours(Image& picture, const Image& source) {
    check_same_size(picture, source);
    // Pixels count the less the more they differ, in rounds that look ever closer.
    constexpr double kFirstScale = 64;
    constexpr double kLastScale = 6;
    constexpr size_t kSamples = 200'000;
    constexpr double kLeastAlike = 0.05;
    const size_t n_pixels = picture.rgb.size() / 3;
    const size_t stride = std::max<size_t>(1, n_pixels / kSamples);
    Lines lines;
    for (double scale = kFirstScale; scale >= kLastScale; scale *= 0.7) {
        std::array<LineSums, 3> sums;
        for (size_t i = 0; i < n_pixels; i += stride) {
            std::array<double, 3> difference = {};
            for (size_t c = 0; c < 3; ++c) {
                difference[c] = source.rgb[3 * i + c] - lines[c](picture.rgb[3 * i + c]);
            }
            const double weight = likeness(difference, scale);
            for (size_t c = 0; c < 3; ++c) {
                sums[c].add(weight, picture.rgb[3 * i + c], source.rgb[3 * i + c]);
            }
        }
        if (sums[0].w < kLeastAlike * static_cast<double>(n_pixels / stride)) {
            return false;
        }
        for (size_t c = 0; c < 3; ++c) {
            lines[c] = sums[c].fit();
        }
    }
    for (size_t i = 0; i < picture.rgb.size(); ++i) {
        picture.rgb[i] = to_byte(static_cast<float>(lines[i % 3](picture.rgb[i])));
    }
    return true;
}

void match_seam(Image& picture, const Image& source, const Mask& mask) {
    check_same_size(picture, source);
    check_mask(mask);
    check(mask.width == picture.width && mask.height == picture.height, ErrorKind::internal,
          "a mask of ", mask.width, " x ", mask.height, " pixels for a picture of ", picture.width,
          " x ", picture.height);
    Field field = missing_colours(picture, source, mask);
    fill(field);
    for (int y = 0; y < picture.height; ++y) {
        for (int x = 0; x < picture.width; ++x) {
            const size_t pixel = static_cast<size_t>(y) * static_cast<size_t>(picture.width) +
                                 static_cast<size_t>(x);
            if (mask.values[pixel] == 0) {
                continue;
            }
            const Colour missing = field.at((static_cast<float>(x) + 0.5f) / kCell,
                                            (static_cast<float>(y) + 0.5f) / kCell);
            for (size_t c = 0; c < 3; ++c) {
                picture.rgb[3 * pixel + c] = to_byte(picture.rgb[3 * pixel + c] + missing[c]);
            }
        }
    }
}

}  // namespace flux2
