#include "pipeline/edit.hpp"

#include <flux2/error.hpp>
#include "pipeline/sampler.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace flux2 {
namespace {

constexpr ImageSize kModelSize = {256, 256};

Image picture(int width, int height) {
    Image image{width, height, {}};
    uint32_t state = 1;
    for (int i = 0; i < width * height * 3; ++i) {
        state = state * 1664525u + 1013904223u;
        image.rgb.push_back(static_cast<uint8_t>(96 + (state >> 26)));
    }
    return image;
}

Mask box_mask(int width, int height, const Region& region) {
    Mask mask{width, height, {}};
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            const bool inside =
                x >= region.x && x < region.right() && y >= region.y && y < region.bottom();
            mask.values.push_back(inside ? 255 : 0);
        }
    }
    return mask;
}

Request masked_request(int width, int height, const Region& region) {
    Request request;
    request.init = InitImage{picture(width, height), {}};
    request.inpaint = Inpaint{.mask = box_mask(width, height, region)};
    return request;
}

Edit make_edit(const Request& request) {
    return {request, kModelSize, request.width, request.height};
}

std::string refusal(const Request& request) {
    try {
        make_edit(request);
    } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::bad_argument);
        return error.what();
    }
    return "";
}

Image of_colour(ImageSize size, uint8_t value) {
    return {size.width, size.height,
            std::vector<uint8_t>(static_cast<size_t>(size.width * size.height * 3), value)};
}

// Whether both have the same bytes at a pixel.
bool same_at(const Image& a, const Image& b, int x, int y) {
    const auto i = static_cast<size_t>((y * a.width + x) * 3);
    return a.rgb[i] == b.rgb[i] && a.rgb[i + 1] == b.rgb[i + 1] && a.rgb[i + 2] == b.rgb[i + 2];
}

TEST_CASE("a picture of the model's kind is seen as it is") {
    const Request request = masked_request(256, 192, {100, 60, 50, 40});
    const Edit edit = make_edit(request);
    CHECK(edit.working_size().width == 256);
    CHECK(edit.working_size().height == 192);
    CHECK(edit.model_picture(request.init->image).rgb == request.init->image.rgb);
}

TEST_CASE("a size off the grid is filled up, not scaled, and cut off again") {
    const Request request = masked_request(250, 201, {100, 60, 50, 40});
    const Edit edit = make_edit(request);
    CHECK(edit.working_size().width == 256);
    CHECK(edit.working_size().height == 208);
    const Image seen = edit.model_picture(request.init->image);
    for (int y = 0; y < 201; ++y) {
        for (int x = 0; x < 250; ++x) {
            const auto i = static_cast<size_t>((y * 256 + x) * 3);
            const auto j = static_cast<size_t>((y * 250 + x) * 3);
            REQUIRE(seen.rgb[i] == request.init->image.rgb[j]);
        }
    }
    const Image result = edit.finish(request.init->image, seen);
    CHECK(result.width == 250);
    CHECK(result.height == 201);
    CHECK(result.rgb == request.init->image.rgb);
}

TEST_CASE("outside the mask every byte stays, inside the model's picture stands") {
    for (const InpaintArea area : {InpaintArea::whole, InpaintArea::masked}) {
        Request request = masked_request(500, 300, {200, 100, 90, 60});
        request.inpaint->area = area;
        const Edit edit = make_edit(request);
        const Image& source = request.init->image;
        const Image result = edit.finish(source, of_colour(edit.working_size(), 20));
        REQUIRE(result.width == 500);
        REQUIRE(result.height == 300);
        for (int y = 0; y < 300; ++y) {
            for (int x = 0; x < 500; ++x) {
                const bool inside = x >= 200 && x < 290 && y >= 100 && y < 160;
                REQUIRE((inside || same_at(source, result, x, y)));
            }
        }
        CHECK_FALSE(same_at(source, result, 245, 130));
    }
}

TEST_CASE("a masked area is shown at the model's own resolution, with its surroundings") {
    Request request = masked_request(3000, 2000, {1000, 900, 400, 300});
    request.inpaint->area = InpaintArea::masked;
    const Edit edit = make_edit(request);
    const Region& region = edit.region();
    CHECK(region.x <= 1000 - 64);
    CHECK(region.y <= 900 - 64);
    CHECK(region.right() >= 1400 + 64);
    CHECK(region.bottom() >= 1200 + 64);
    CHECK(region.width < 800);
    const ImageSize size = edit.working_size();
    CHECK(size.width % 16 == 0);
    CHECK(size.height % 16 == 0);
    CHECK(size.width * size.height == doctest::Approx(256 * 256).epsilon(0.15));
    // The same scale along both axes.
    CHECK(static_cast<double>(size.width) / region.width ==
          doctest::Approx(static_cast<double>(size.height) / region.height).epsilon(0.01));

    request.inpaint->padding = 0;
    const Region tight = make_edit(request).region();
    CHECK(tight.width * tight.height < region.width * region.height);
    CHECK(tight.x <= 1000);
    CHECK(tight.right() >= 1400);
}

TEST_CASE("a masked area at the border or as large as the picture stays within it") {
    for (const Region& mask : {Region{0, 0, 30, 20}, Region{470, 280, 30, 20},
                               Region{0, 0, 500, 299}, Region{3, 290, 490, 10}}) {
        Request request = masked_request(500, 300, mask);
        request.inpaint->area = InpaintArea::masked;
        const Region region = make_edit(request).region();
        CHECK(region.x >= 0);
        CHECK(region.y >= 0);
        CHECK(region.right() <= 500);
        CHECK(region.bottom() <= 300);
        CHECK(region.x <= mask.x);
        CHECK(region.y <= mask.y);
        CHECK(region.right() >= mask.right());
        CHECK(region.bottom() >= mask.bottom());
    }
}

TEST_CASE("an impulse stays in place when a region is scaled to the model and back") {
    Request request = masked_request(640, 480, {260, 180, 120, 100});
    request.inpaint->area = InpaintArea::masked;
    Image dark = of_colour({640, 480}, 20);
    for (int y = 229; y <= 231; ++y) {
        for (int x = 319; x <= 321; ++x) {
            const auto i = static_cast<size_t>((y * 640 + x) * 3);
            dark.rgb[i] = dark.rgb[i + 1] = dark.rgb[i + 2] = 250;
        }
    }
    request.init->image = dark;
    const Edit edit = make_edit(request);
    const Image result = edit.finish(dark, edit.model_picture(dark));
    double sum = 0;
    double sum_x = 0;
    double sum_y = 0;
    for (int y = 190; y < 270; ++y) {
        for (int x = 270; x < 370; ++x) {
            const double value = result.rgb[static_cast<size_t>((y * 640 + x) * 3)] - 20.0;
            sum += value;
            sum_x += value * x;
            sum_y += value * y;
        }
    }
    CHECK(sum_x / sum == doctest::Approx(320).epsilon(0.0003));
    CHECK(sum_y / sum == doctest::Approx(230).epsilon(0.0004));
}

TEST_CASE("a larger canvas keeps the picture's bytes and marks only what is new") {
    Request request;
    request.init = InitImage{picture(160, 128), {}};
    request.outpaint = Outpaint{.left = 32, .top = 16, .right = 0, .bottom = 80};
    const Edit edit = make_edit(request);
    CHECK(edit.canvas().width == 192);
    CHECK(edit.canvas().height == 224);
    const std::vector<float> cells = edit.cells();
    for (int y = 0; y < 14; ++y) {
        for (int x = 0; x < 12; ++x) {
            const bool is_new = x < 2 || y < 1 || y >= 9;
            CHECK(cells[static_cast<size_t>(y * 12 + x)] == (is_new ? 1.0f : 0.0f));
        }
    }
    const Image result = edit.finish(request.init->image, of_colour({192, 224}, 0));
    for (int y = 0; y < 128; ++y) {
        for (int x = 0; x < 160; ++x) {
            const auto i = static_cast<size_t>(((y + 16) * 192 + x + 32) * 3);
            const auto j = static_cast<size_t>((y * 160 + x) * 3);
            REQUIRE(result.rgb[i] == request.init->image.rgb[j]);
        }
    }
}

// What a fixture of tests/fixtures/colour has.
std::vector<std::byte> profile_of(const char* name) {
    return load_image_with_profile(test::fixture(std::string("colour/") + name)).profile;
}

TEST_CASE("a picture with a profile keeps its bytes and profile, and is painted in its colours" *
          doctest::skip(!supports_profiles())) {
    for (const char* name : {"p3.png", "adobe-rgb.png"}) {
        CAPTURE(name);
        Request request = masked_request(200, 120, {60, 30, 80, 60});
        request.outpaint = Outpaint{.left = 16, .top = 32};
        Image& source = request.init->image;
        source.profile = profile_of(name);
        const Edit edit = make_edit(request);
        const Image seen = edit.model_picture(source);
        CHECK(seen.profile.empty());
        CHECK(seen.rgb == edit.model_picture(to_srgb(source)).rgb);

        const ImageSize size = edit.working_size();
        Image made{size.width, size.height, {}};
        for (int i = 0; i < size.width * size.height; ++i) {
            made.rgb.insert(made.rgb.end(), {180, 90, 60});
        }
        const Image result = edit.finish(source, made);
        CHECK(result.profile == source.profile);
        REQUIRE(result.width == 216);
        REQUIRE(result.height == 152);
        size_t n_kept = 0;
        for (int y = 0; y < 120; ++y) {
            for (int x = 0; x < 200; ++x) {
                if (x >= 60 && x < 140 && y >= 30 && y < 90) {
                    continue;
                }
                const auto from = 3 * static_cast<size_t>(y * 200 + x);
                const auto to = 3 * static_cast<size_t>((y + 32) * 216 + x + 16);
                for (size_t c = 0; c < 3; ++c) {
                    REQUIRE(result.rgb[to + c] == source.rgb[from + c]);
                }
                n_kept++;
            }
        }
        CHECK(n_kept == 200 * 120 - 80 * 60);
        // In sRGB it is what an edit of the converted picture gives; two conversions round.
        const Image in_srgb = to_srgb(result);
        const Image expected = edit.finish(to_srgb(source), made);
        for (size_t i = 0; i < expected.rgb.size(); ++i) {
            REQUIRE(std::abs(in_srgb.rgb[i] - expected.rgb[i]) <= 2);
        }
        CHECK_FALSE(same_at(expected, edit.model_picture(source), 16 + 100, 32 + 60));
    }
    Request request = masked_request(200, 120, {60, 30, 80, 60});
    request.init->image.profile.resize(7);
    CHECK(refusal(request).find("has a colour profile into which nothing can be converted") !=
          std::string::npos);
}

TEST_CASE("masks and canvases that cannot work are refused with what to do") {
    const auto changed = [](auto change) {
        Request request = masked_request(256, 256, {64, 64, 64, 64});
        change(request);
        return refusal(request);
    };
    CHECK(changed([](Request&) {}) == "");
    CHECK(changed([](Request& r) { r.init.reset(); }).find("needs a picture") != std::string::npos);
    CHECK(changed([](Request& r) {
              r.inpaint->mask = box_mask(256, 250, {0, 0, 9, 9});
          }).find("the mask has 256x250 pixels, the picture 256x256") != std::string::npos);
    CHECK(changed([](Request& r) {
              r.inpaint->mask = box_mask(256, 256, {});
          }).find("the mask is empty") != std::string::npos);
    CHECK(changed([](Request& r) { r.inpaint->grow = -40; }).find("the mask is empty") !=
          std::string::npos);
    CHECK(changed([](Request& r) {
              r.inpaint->mask = box_mask(256, 256, {0, 0, 256, 256});
          }).find("covers the whole picture") != std::string::npos);
    CHECK(changed([](Request& r) {
              r.inpaint->mask = box_mask(256, 256, {0, 0, 256, 256});
              r.inpaint->invert = true;
          }).find("the mask is empty") != std::string::npos);
    CHECK(changed([](Request& r) { r.inpaint->blur = -1; }).find("out of range") !=
          std::string::npos);
    CHECK(changed([](Request& r) { r.inpaint->blend = 5000; }).find("out of range") !=
          std::string::npos);
    CHECK(changed([](Request& r) { r.match_reference = 0; }).find("keeps its size") !=
          std::string::npos);
    CHECK(changed([](Request& r) { r.outpaint = Outpaint{.left = -1}; }).find("out of range") !=
          std::string::npos);
    CHECK(changed([](Request& r) { r.outpaint = Outpaint{}; }).find("0 pixels") !=
          std::string::npos);
    CHECK(changed([](Request& r) { r.outpaint = Outpaint{.right = 16384}; }).find("canvas of") !=
          std::string::npos);
}

TEST_CASE("known tokens are put back at the noise level of each step") {
    KnownRegion known;
    known.noise = HostTensor({2, 3, 1, 1});
    known.noise.data = {1, 2, 3, 4, 5, 6};
    known.latents = HostTensor({2, 3, 1, 1});
    known.latents.data = {10, 20, 30, 40, 50, 60};
    known.mask = {0.0f, 0.25f, 1.0f};
    HostTensor x({2, 3, 1, 1});
    x.data = {-1, -2, -3, -4, -5, -6};
    known.blend(x, 0.5f);
    // 0.5 * noise + 0.5 * latents: 5.5, 11, 16.5, 22
    CHECK(x.data == std::vector<float>{5.5f, 11.0f, 0.25f * -3 + 0.75f * 16.5f,
                                       0.25f * -4 + 0.75f * 22.0f, -5.0f, -6.0f});
}

}  // namespace
}  // namespace flux2
