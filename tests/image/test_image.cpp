#include "image/image.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>

namespace flux2 {
namespace {

void append(Image& image, int red, int green, int blue) {
    for (const int value : {red, green, blue}) {
        image.rgb.push_back(static_cast<uint8_t>(value));
    }
}

// Red counts columns, green counts rows.
Image gradient(int width, int height) {
    Image image{width, height, {}};
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++) {
            append(image, x, y, 7);
        }
    }
    return image;
}

std::array<int, 3> pixel(const Image& image, int x, int y) {
    const size_t i = static_cast<size_t>(y * image.width + x) * 3;
    return {image.rgb.at(i), image.rgb.at(i + 1), image.rgb.at(i + 2)};
}

std::array<int, 2> fitted_size(int width, int height, int64_t max_pixels) {
    const Image image{
        width, height,
        std::vector<uint8_t>(static_cast<size_t>(width) * static_cast<size_t>(height) * 3)};
    const Image fitted = fit_reference(image, max_pixels);
    check_image(fitted);
    const ImageSize size = flux2::fitted_size(image, max_pixels);
    CHECK(size.width == fitted.width);
    CHECK(size.height == fitted.height);
    return {fitted.width, fitted.height};
}

TEST_CASE("resizing gives Pillow's bytes") {
    const Image image = load_image(test::fixture("lanczos/in.png"));
    CHECK(resize_lanczos(image, 64, 97).rgb == load_image(test::fixture("lanczos/64x97.png")).rgb);
    CHECK(resize_lanczos(image, 97, 64).rgb == load_image(test::fixture("lanczos/97x64.png")).rgb);
    CHECK(resize_lanczos(image, image.width, image.height).rgb == image.rgb);
}

TEST_CASE("resizing a plain colour keeps it, in both directions") {
    Image image{5, 3, {}};
    for (int i = 0; i < 15; i++) {
        append(image, 0, 100, 255);
    }
    for (const int size : {1, 2, 40}) {
        const Image resized = resize_lanczos(image, size, size);
        CHECK(resized.rgb.size() == static_cast<size_t>(size * size * 3));
        CHECK(pixel(resized, 0, 0) == std::array{0, 100, 255});
        CHECK(pixel(resized, size - 1, size - 1) == std::array{0, 100, 255});
    }
}

TEST_CASE("a crop takes the middle") {
    const Image cropped = center_crop(gradient(7, 6), 4, 3);
    CHECK(cropped.width == 4);
    CHECK(cropped.height == 3);
    // (7 - 4) / 2 and (6 - 3) / 2, both rounded down.
    CHECK(pixel(cropped, 0, 0) == std::array{1, 1, 7});
    CHECK(pixel(cropped, 3, 2) == std::array{4, 3, 7});
    CHECK(test::error_of([] { center_crop(gradient(7, 6), 8, 3); }).kind ==
          ErrorKind::bad_argument);
}

TEST_CASE("references are capped, then cropped to multiples of 16") {
    constexpr int64_t kOne = 2024 * 2024;
    constexpr int64_t kMany = 1024 * 1024;
    CHECK(fitted_size(64, 64, kOne) == std::array{64, 64});
    CHECK(fitted_size(200, 79, kOne) == std::array{192, 64});
    CHECK(fitted_size(512, 64, kOne) == std::array{512, 64});
    CHECK(fitted_size(1024, 1024, kMany) == std::array{1024, 1024});
    // sqrt(1048576 / 2073600) = 0.711111: 1365.33 x 768.
    CHECK(fitted_size(1920, 1080, kMany) == std::array{1360, 768});
    // sqrt(1048576 / 1050625) = 0.999024: 1024 x 1024.
    CHECK(fitted_size(1025, 1025, kMany) == std::array{1024, 1024});
    // sqrt(4096576 / 4500000) = 0.954122: 2862.4 x 1431.2.
    CHECK(fitted_size(3000, 1500, kOne) == std::array{2848, 1424});
    // Cut off evenly: 200 -> 192 leaves 4 on the left, 79 -> 64 leaves 7 above.
    CHECK(pixel(fit_reference(gradient(200, 79), kOne), 0, 0) == std::array{4, 7, 7});
}

TEST_CASE("references too small or too long are refused") {
    const auto refused = [](int width, int height, int64_t max_pixels) {
        return test::error_of([&] { fitted_size(width, height, max_pixels); });
    };
    CHECK(refused(63, 200, 1 << 20).kind == ErrorKind::bad_argument);
    CHECK(refused(200, 63, 1 << 20).mentions("200 x 63"));
    CHECK(refused(513, 64, 1 << 20).mentions("8 times"));
    CHECK(refused(64, 513, 1 << 20).kind == ErrorKind::bad_argument);
    CHECK(refused(512, 64, 100).mentions("100 pixels"));
    CHECK(refused(512, 64, 0).kind == ErrorKind::bad_argument);
    CHECK(refused(512, 64, -1).kind == ErrorKind::bad_argument);
}

TEST_CASE("images whose sizes and bytes disagree are refused") {
    const auto refused = [](const Image& image) {
        return test::error_of([&] { to_planes(image); }).kind;
    };
    CHECK(refused({2, 2, std::vector<uint8_t>(11)}) == ErrorKind::bad_argument);
    CHECK(refused({0, 2, {}}) == ErrorKind::bad_argument);
    CHECK(refused({-1, -1, std::vector<uint8_t>(3)}) == ErrorKind::bad_argument);
    CHECK(refused({16385, 1, std::vector<uint8_t>(16385 * 3)}) == ErrorKind::bad_argument);
    CHECK(test::error_of([] { resize_lanczos(gradient(2, 2), 0, 2); }).kind ==
          ErrorKind::bad_argument);
}

TEST_CASE("bytes become planes of -1 to 1") {
    const HostTensor planes = to_planes({2, 1, {0, 51, 255, 102, 153, 204}});
    CHECK(planes.ne == std::array<int64_t, 4>{2, 1, 3, 1});
    const std::array expected = {-1.0f, -0.2f, -0.6f, 0.2f, 1.0f, 0.6f};
    REQUIRE(planes.data.size() == expected.size());
    for (size_t i = 0; i < expected.size(); i++) {
        // Two roundings of a float below 2.
        CHECK(std::abs(planes.data[i] - expected[i]) <= 3e-7f);
    }
}

TEST_CASE("planes become bytes, clamped and rounded") {
    HostTensor planes({2, 1, 3, 1});
    // (x / 2 + 0.5) * 255: -0.0255 -> 124.2, 0.003 -> 127.9, 0 -> 127.5, which goes to even.
    planes.data = {-1.5f, 0.0f, -0.0255f, 0.003f, 1.0f, std::numeric_limits<float>::infinity()};
    const Image image = from_planes(planes);
    CHECK(image.width == 2);
    CHECK(image.height == 1);
    CHECK(image.rgb == std::vector<uint8_t>{0, 124, 255, 128, 128, 255});
}

TEST_CASE("every byte survives the way to planes and back") {
    Image image{16, 16, {}};
    for (int i = 0; i < 256; i++) {
        append(image, i, 255 - i, i / 2);
    }
    CHECK(from_planes(to_planes(image)).rgb == image.rgb);
}

TEST_CASE("planes that are no picture are refused") {
    HostTensor planes({2, 2, 3, 1});
    planes.data[5] = std::numeric_limits<float>::quiet_NaN();
    const auto error = test::error_of([&] { from_planes(planes); });
    CHECK(error.kind == ErrorKind::backend);
    CHECK(error.mentions("pixel 1, 0"));
    CHECK(test::error_of([] {
              from_planes(HostTensor({2, 2, 4, 1}));
          }).kind == ErrorKind::internal);
}

}  // namespace
}  // namespace flux2
