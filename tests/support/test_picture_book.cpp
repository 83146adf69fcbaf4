// The reader of picture-book scenes against facts: pictures that the world itself drew, whose
// scenes are written down. It must see what is there and deny everything else.
#include "support/picture_book.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using test::Scene;

struct Drawn {
    std::string file;
    Image image;
    Scene scene;
};

std::vector<Drawn> drawn_by_the_world() {
    std::vector<Drawn> pictures;
    for (const test::Edit& edit : test::read_edits(test::fixture("tiny/edits.json"))) {
        pictures.push_back(
            {edit.reference, load_image(test::fixture("tiny/" + edit.reference)), edit.before});
    }
    REQUIRE(pictures.size() == 8);
    return pictures;
}

// All scenes that differ in one attribute: sky, ground, or colour or place of one thing; and those
// with a thing less.
std::vector<Scene> alternatives(const Scene& scene) {
    std::vector<Scene> others;
    const auto add = [&](auto change) {
        others.push_back(scene);
        change(others.back());
    };
    for (const std::string& sky : test::all_skies()) {
        if (sky != scene.sky) {
            add([&](Scene& other) { other.sky = sky; });
        }
    }
    for (const std::string& ground : test::all_grounds()) {
        if (ground != scene.ground) {
            add([&](Scene& other) { other.ground = ground; });
        }
    }
    for (const auto& [place, thing] : scene.things) {
        add([&](Scene& other) { other.things.erase(place); });
        for (const std::string& colour : test::all_colours()) {
            if (colour != thing.colour) {
                add([&](Scene& other) { other.things[place].colour = colour; });
            }
        }
        for (const std::string& free : test::all_places()) {
            if (!scene.things.contains(free)) {
                add([&](Scene& other) {
                    other.things.erase(place);
                    other.things[free] = thing;
                });
            }
        }
    }
    return others;
}

TEST_CASE("the reader sees what the world drew") {
    for (const Drawn& drawn : drawn_by_the_world()) {
        CAPTURE(drawn.file);
        CHECK(test::mistakes(drawn.image, drawn.scene) == "");
    }
}

TEST_CASE("the reader denies every scene that differs in one attribute") {
    for (const Drawn& drawn : drawn_by_the_world()) {
        CAPTURE(drawn.file);
        const std::vector<Scene> others = alternatives(drawn.scene);
        CHECK(others.size() >= 3 + 3 + 1 + 9);
        for (const Scene& other : others) {
            CHECK(test::mistakes(drawn.image, other) != "");
        }
    }
}

TEST_CASE("the reader sees no thing of any kind and size at an empty place") {
    for (const Drawn& drawn : drawn_by_the_world()) {
        CAPTURE(drawn.file);
        for (const std::string& place : test::all_places()) {
            if (drawn.scene.things.contains(place)) {
                continue;
            }
            CAPTURE(place);
            for (const std::string& kind : test::all_kinds()) {
                // Big ones reach over to their neighbours' place.
                for (const char* size : {"small", "medium"}) {
                    CAPTURE(kind);
                    CHECK(test::read_colour(drawn.image, place, {kind, "", size}) == "");
                }
            }
        }
    }
}

TEST_CASE("a picture of nothing shows nothing of the world") {
    Image magenta = {64, 64, {}};
    for (int i = 0; i < 64 * 64; ++i) {
        magenta.rgb.insert(magenta.rgb.end(), {255, 0, 255});
    }
    CHECK(test::mistakes(magenta, {"day", "grass", {}}) ==
          "sky: nothing, not day; ground: nothing, not grass");
}

TEST_CASE("what an edit may change covers the thing and not its neighbours") {
    Scene before;
    before.things["left"] = {"house", "red", "small"};
    Scene after = before;
    CHECK(test::may_change(before, after, 256, 256) == std::vector<bool>(256 * 256));
    after.things["right"] = {"ball", "red", "medium"};
    const std::vector<bool> flags = test::may_change(before, after, 256, 256);
    // The ball is 0.6 * 76.8 = 46 pixels wide and high around x = 205, above y = 214.
    CHECK(flags[200 * 256 + 205]);
    CHECK(flags[175 * 256 + 225]);
    CHECK(!flags[200 * 256 + 60]);
    CHECK(!flags[100 * 256 + 205]);
}

TEST_CASE("another sky leaves only the ground, in another light") {
    Scene before;
    before.sky = "cloudy";
    Scene after;
    after.sky = "day";
    const std::vector<bool> flags = test::may_change(before, after, 256, 256);
    CHECK(flags[0]);
    CHECK(!flags[255 * 256]);
    // The world's light on the ground is 0.84, 0.86, 0.90 under clouds and 1 by day.
    CHECK(test::ground_under({1, 1, {84, 86, 90}}, "cloudy", "day").rgb ==
          std::vector<uint8_t>{100, 100, 100});
}

TEST_CASE("the PSNR leaves out what may change") {
    Image a = {2, 1, {0, 0, 0, 10, 10, 10}};
    const Image b = {2, 1, {1, 1, 1, 90, 90, 90}};
    // 10 log10(255^2) for an error of one.
    CHECK(test::psnr(a, b, {false, true}) == doctest::Approx(48.1308));
    CHECK(test::psnr(a, b) < 20);
    CHECK(test::psnr(a, a) == std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace flux2
