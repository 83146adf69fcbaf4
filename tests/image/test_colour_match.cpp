#include "image/colour_match.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace flux2 {
namespace {

// Colours that vary smoothly, with some texture.
Image scene(int width, int height) {
    Image image{width, height, {}};
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            const double texture = 10 * std::sin(x * 0.7) * std::cos(y * 0.9);
            for (const double value : {60 + 0.5 * x + texture, 90 + 0.4 * y + texture,
                                       150 - 0.3 * x + 0.2 * y + texture}) {
                image.rgb.push_back(static_cast<uint8_t>(std::clamp(value, 0.0, 255.0)));
            }
        }
    }
    return image;
}

template <typename Change>
Image changed(const Image& image, const Change& change) {
    Image result = image;
    for (size_t i = 0; i < result.rgb.size(); ++i) {
        result.rgb[i] = static_cast<uint8_t>(
            std::clamp(std::lround(change(static_cast<double>(image.rgb[i]), i % 3)), 0L, 255L));
    }
    return result;
}

double mean_difference(const Image& a, const Image& b, const std::vector<bool>& where) {
    double sum = 0;
    double n = 0;
    for (size_t i = 0; i < a.rgb.size(); ++i) {
        if (where[i / 3]) {
            sum += std::abs(a.rgb[i] - b.rgb[i]);
            n += 1;
        }
    }
    return sum / n;
}

TEST_CASE("a tint is undone by what did not change, whatever else did") {
    const Image source = scene(128, 96);
    // Brighter, with less contrast and a yellow tint.
    Image result = changed(source, [](double value, size_t channel) {
        return 0.93 * value + (channel == 2 ? 2.0 : 12.0);
    });
    std::vector<bool> kept(128 * 96, true);
    for (int y = 20; y < 70; ++y) {
        for (int x = 30; x < 90; ++x) {  // a quarter of the picture is something else
            const auto i = static_cast<size_t>(y * 128 + x);
            kept[i] = false;
            result.rgb[3 * i] = 230;
            result.rgb[3 * i + 1] = 20;
            result.rgb[3 * i + 2] = 40;
        }
    }
    CHECK(mean_difference(result, source, kept) > 4);
    CHECK(match_colours(result, source));
    CHECK(mean_difference(result, source, kept) < 1);
    // What is new stays far from what was there.
    CHECK(result.rgb[3 * (40 * 128 + 60)] > 200);
}

TEST_CASE("equal pictures stay equal, pictures with nothing in common as they are") {
    const Image source = scene(64, 64);
    Image same = source;
    CHECK(match_colours(same, source));
    CHECK(same.rgb == source.rgb);
    const Image other = changed(source, [](double value, size_t) { return 255 - value * 0.4; });
    Image result = other;
    CHECK_FALSE(match_colours(result, changed(source, [](double value, size_t c) {
                                  return c == 0 ? 10.0 : value * 0.2;
                              })));
    CHECK(result.rgb == other.rgb);
}

TEST_CASE("a seam disappears where the surroundings are shifted smoothly") {
    const Image source = scene(96, 96);
    // The shift grows from left to right, as one value cannot undo it.
    Image result = source;
    Mask mask{96, 96, std::vector<uint8_t>(96 * 96)};
    std::vector<bool> masked(96 * 96, false);
    for (int y = 0; y < 96; ++y) {
        for (int x = 0; x < 96; ++x) {
            const auto i = static_cast<size_t>(y * 96 + x);
            for (size_t c = 0; c < 3; ++c) {
                result.rgb[3 * i + c] =
                    static_cast<uint8_t>(std::min(255, source.rgb[3 * i + c] + 4 + x / 12));
            }
            if (x >= 32 && x < 64 && y >= 32 && y < 64) {
                mask.values[i] = 255;
                masked[i] = true;
            }
        }
    }
    CHECK(mean_difference(result, source, masked) > 6);
    match_seam(result, source, mask);
    CHECK(mean_difference(result, source, masked) < 1);
}

TEST_CASE("a change next to the mask does not colour what is inside") {
    const Image source = scene(96, 96);
    Image result = source;
    Mask mask{96, 96, std::vector<uint8_t>(96 * 96)};
    std::vector<bool> masked(96 * 96, false);
    for (int y = 32; y < 64; ++y) {
        for (int x = 24; x < 64; ++x) {
            const auto i = static_cast<size_t>(y * 96 + x);
            if (x >= 32) {
                mask.values[i] = 255;
                masked[i] = true;
            } else {  // the model also painted left of the mask
                result.rgb[3 * i] = 255;
                result.rgb[3 * i + 1] = 0;
                result.rgb[3 * i + 2] = 0;
            }
        }
    }
    match_seam(result, source, mask);
    CHECK(mean_difference(result, source, masked) < 1);
}

}  // namespace
}  // namespace flux2
