#include "image/mask.hpp"

#include <flux2/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace flux2 {
namespace {

Mask empty_mask(int width, int height) {
    return {width, height,
            std::vector<uint8_t>(static_cast<size_t>(width) * static_cast<size_t>(height))};
}

uint8_t& at(Mask& mask, int x, int y) {
    return mask.values[static_cast<size_t>(y * mask.width + x)];
}

uint8_t at(const Mask& mask, int x, int y) {
    return mask.values[static_cast<size_t>(y * mask.width + x)];
}

Mask box(int width, int height, const Region& region) {
    Mask mask = empty_mask(width, height);
    for (int y = region.y; y < region.bottom(); ++y) {
        for (int x = region.x; x < region.right(); ++x) {
            at(mask, x, y) = 255;
        }
    }
    return mask;
}

TEST_CASE("a grown pixel is a disk, whose brightness is the pixel's") {
    Mask mask = empty_mask(21, 21);
    at(mask, 10, 10) = 200;
    const Mask disk = grown(mask, 5);
    for (int y = 0; y < 21; ++y) {
        for (int x = 0; x < 21; ++x) {
            const int distance_2 = (x - 10) * (x - 10) + (y - 10) * (y - 10);
            CAPTURE(x);
            CAPTURE(y);
            CHECK(at(disk, x, y) == (distance_2 <= 25 ? 200 : 0));
        }
    }
}

TEST_CASE("growing takes the largest value in reach, as the plain definition does") {
    Mask mask = empty_mask(23, 17);
    uint32_t state = 7;
    for (uint8_t& value : mask.values) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<uint8_t>((state >> 24) % 5 == 0 ? state >> 16 : 0);
    }
    const auto plain = [&](int radius, auto choose) {
        Mask result = mask;
        for (int y = 0; y < mask.height; ++y) {
            for (int x = 0; x < mask.width; ++x) {
                for (int v = 0; v < mask.height; ++v) {
                    for (int u = 0; u < mask.width; ++u) {
                        if ((u - x) * (u - x) + (v - y) * (v - y) <= radius * radius) {
                            at(result, x, y) = choose(at(result, x, y), at(mask, u, v));
                        }
                    }
                }
            }
        }
        return result;
    };
    for (const int radius : {1, 2, 3, 7}) {
        CHECK(grown(mask, radius).values ==
              plain(radius, [](uint8_t a, uint8_t b) { return std::max(a, b); }).values);
        CHECK(grown(mask, -radius).values ==
              plain(radius, [](uint8_t a, uint8_t b) { return std::min(a, b); }).values);
    }
    CHECK(grown(mask, 0).values == mask.values);
}

TEST_CASE("blurring stays within its reach, keeps the middle of an edge and is symmetric") {
    const Mask mask = box(60, 40, {20, 10, 20, 20});
    const Mask soft = blurred(mask, 6);
    // The edge lies between columns 19 and 20.
    for (int d = 0; d < 8; ++d) {
        CHECK(int{at(soft, 20 + d, 20)} + at(soft, 19 - d, 20) ==
              doctest::Approx(255).epsilon(0.005));
        CHECK(at(soft, 20 + d, 20) == at(soft, 39 - d, 20));
    }
    CHECK(at(soft, 13, 20) == 0);
    CHECK(at(soft, 14, 20) > 0);
    CHECK(at(soft, 26, 20) == 255);
    CHECK(at(soft, 25, 20) < 255);
    CHECK(blurred(mask, 0).values == mask.values);
}

TEST_CASE("a mask at the picture's border stays solid there when it is blurred") {
    const Mask soft = blurred(box(40, 40, {0, 0, 20, 40}), 5);
    CHECK(at(soft, 0, 20) == 255);
    CHECK(at(soft, 0, 0) == 255);
    CHECK(at(soft, 30, 0) == 0);
}

TEST_CASE("softening inside changes nothing outside and rises towards the middle") {
    const Mask mask = box(80, 80, {20, 20, 40, 40});
    const Mask share = softened_inside(mask, 8);
    for (size_t i = 0; i < mask.values.size(); ++i) {
        REQUIRE(share.values[i] <= mask.values[i]);
    }
    CHECK(at(share, 19, 40) == 0);
    CHECK(at(share, 20, 40) < 64);
    CHECK(at(share, 40, 40) == 255);
    for (int x = 21; x < 40; ++x) {
        CHECK(at(share, x, 40) >= at(share, x - 1, 40));
    }
}

TEST_CASE("softening inside keeps lines that are thinner than its width") {
    const Mask mask = box(80, 80, {20, 40, 40, 3});
    const Mask share = softened_inside(mask, 12);
    CHECK(at(share, 40, 41) == 255);
    CHECK(at(share, 40, 38) == 0);
}

TEST_CASE("the covered region is the smallest that holds all values") {
    Mask mask = empty_mask(30, 20);
    CHECK(covered_region(mask).is_empty());
    at(mask, 4, 5) = 1;
    at(mask, 22, 13) = 255;
    const Region region = covered_region(mask);
    CHECK(region.x == 4);
    CHECK(region.y == 5);
    CHECK(region.right() == 23);
    CHECK(region.bottom() == 14);
}

TEST_CASE("a cell has the largest value of its pixels, also of a scaled region") {
    Mask mask = empty_mask(64, 48);
    at(mask, 15, 15) = 51;
    at(mask, 16, 16) = 102;
    at(mask, 63, 47) = 255;
    const std::vector<float> cells = mask_cells(mask, {0, 0, 64, 48}, {64, 48}, 4, 3);
    std::vector<float> expected(12);
    expected[0] = 0.2f;
    expected[5] = 0.4f;
    expected[11] = 1.0f;
    CHECK(cells == expected);

    // Twice as large: a cell shows 8 x 8 pixels.
    const std::vector<float> doubled = mask_cells(mask, {8, 8, 16, 16}, {32, 32}, 2, 2);
    CHECK(doubled == std::vector<float>{0.2f, 0.0f, 0.0f, 0.4f});

    // A region of 20 x 20 pixels fills two cells a side; the second repeats its border.
    Mask corner = empty_mask(20, 20);
    at(corner, 19, 19) = 255;
    CHECK(mask_cells(corner, {0, 0, 20, 20}, {20, 20}, 2, 2) ==
          std::vector<float>{0.0f, 0.0f, 0.0f, 1.0f});
}

TEST_CASE("a mask whose values do not fill it is refused") {
    Mask mask = empty_mask(8, 8);
    mask.values.pop_back();
    CHECK_THROWS_WITH_AS(check_mask(mask), doctest::Contains("63 values, expected 64"), Error);
    CHECK_THROWS_AS(check_mask(Mask{}), Error);
}

}  // namespace
}  // namespace flux2
