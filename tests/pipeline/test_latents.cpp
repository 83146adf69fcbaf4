#include "models/autoencoder.hpp"
#include "pipeline/latents.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

HostTensor counting(std::array<int64_t, 4> ne) {
    HostTensor x(ne);
    for (size_t i = 0; i < x.data.size(); ++i) {
        x.data[i] = static_cast<float>(i);
    }
    return x;
}

TEST_CASE("tokens go row by row with their channels side by side") {
    const HostTensor latents = counting({3, 2, 4, 1});  // 3 wide, 2 high, 4 channels
    const HostTensor tokens = to_tokens(latents);
    CHECK(tokens.ne == std::array<int64_t, 4>{4, 6, 1, 1});
    // Token 4 is row 1, column 1; its channel c is value c * 6 + 4.
    for (size_t c = 0; c < 4; ++c) {
        CHECK(tokens.data[4 * 4 + c] == static_cast<float>(c * 6 + 4));
    }
    CHECK(from_tokens(tokens, 3, 2).data == latents.data);
}

TEST_CASE("text, picture and references stand where the reference puts them") {
    CHECK(text_positions(3).back() == Position{0, 0, 0, 2});
    const auto positions = image_positions(3, 2);
    CHECK(positions.size() == 6);
    CHECK(positions[4] == Position{0, 1, 1, 0});
    CHECK(reference_time(0) == 10);
    CHECK(reference_time(1) == 20);
    CHECK(image_positions(2, 2, reference_time(1))[3] == Position{20, 1, 1, 0});
}

TEST_CASE("2x2 pixels become channels in the order channel, row, column") {
    const HostTensor x = counting({4, 2, 2, 1});  // 4 wide, 2 high, 2 channels
    const HostTensor packed = patchify(x);
    CHECK(packed.ne == std::array<int64_t, 4>{2, 1, 8, 1});
    // Channel 1, row offset 1, column offset 0 at packed column 1: pixel (row 1, column 2).
    const size_t k = 1 * 4 + 1 * 2 + 0;
    CHECK(packed.data[k * 2 + 1] == static_cast<float>(1 * 8 + 1 * 4 + 2));
    CHECK(unpatchify(packed).data == x.data);
}

TEST_CASE("the same seed draws the same noise") {
    const HostTensor a = draw_noise(Generator::cuda, 7, 4, 4, 128);
    CHECK(a.ne == std::array<int64_t, 4>{4, 4, 128, 1});
    CHECK(a.data == draw_noise(Generator::cuda, 7, 4, 4, 128).data);
    CHECK(a.data != draw_noise(Generator::cuda, 8, 4, 4, 128).data);
}

}  // namespace
}  // namespace flux2
