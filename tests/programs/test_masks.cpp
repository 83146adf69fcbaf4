// Masks and larger canvases on the command line: what is kept, what a picture stores, what is
// refused.
#include "common/picture_facts.hpp"
#include "support/cli.hpp"
#include "support/png_builder.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Arguments;
using test::has;
using test::joined;

constexpr int kSide = 96;

// A model, and features instead of a text encoder.
Arguments parts() {
    return joined(test::klein_parts(), {"--embeds", test::few_features()});
}

// A picture of stripes, and masks for it.
class Files {
  public:
    Files() {
        Image picture{kSide, kSide, {}};
        for (int i = 0; i < kSide * kSide; ++i) {
            for (const int value : {i % 251, i / kSide * 2, 90}) {
                picture.rgb.push_back(static_cast<uint8_t>(value));
            }
        }
        save_image(source(), picture);
        save_mask("box.png", kSide,
                  [](int x, int y) { return x >= 32 && x < 64 && y >= 40 && y < 70; });
        save_mask("empty.png", kSide, [](int, int) { return false; });
        save_mask("full.png", kSide, [](int, int) { return true; });
        save_mask("other.png", kSide - 1, [](int x, int) { return x < 9; });
    }

    std::string source() const { return (folder_ / "source.png").string(); }
    std::string file(const std::string& name) const { return (folder_ / name).string(); }

    template <typename Inside>
    void save_mask(const std::string& name, int height, const Inside& inside) const {
        Image mask{kSide, height, {}};
        for (int y = 0; y < height; ++y) {
            for (int x = 0; x < kSide; ++x) {
                mask.rgb.insert(mask.rgb.end(), 3, inside(x, y) ? 255 : 0);
            }
        }
        save_image(file(name), mask);
    }

  private:
    test::TemporaryFolder folder_;
};

test::ProgramResult edit(const Files& files, const Arguments& arguments) {
    return test::flux2_program(joined(
        joined(parts(), {"-p", "x", "--steps", "1", "-s", "3", "-i", files.source()}), arguments));
}

// The pixels that differ: a box around them.
struct Changed {
    int left = kSide, top = kSide, right = -1, bottom = -1;
};

Changed changed_box(const Image& a, const Image& b) {
    REQUIRE(a.rgb.size() == b.rgb.size());
    Changed box;
    for (int y = 0; y < a.height; ++y) {
        for (int x = 0; x < a.width; ++x) {
            const auto i = static_cast<size_t>(3 * (y * a.width + x));
            if (!std::equal(&a.rgb[i], &a.rgb[i] + 3, &b.rgb[i])) {
                box = {std::min(box.left, x), std::min(box.top, y), std::max(box.right, x),
                       std::max(box.bottom, y)};
            }
        }
    }
    return box;
}

TEST_CASE("a mask limits what changes, and redo repeats the edit") {
    const Files files;
    const std::string made = files.file("made.png");
    const auto result =
        edit(files, {"--mask", files.file("box.png"), "--mask-blend", "3", "-o", made, "--json"});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const Image before = load_image(files.source());
    const Changed box = changed_box(before, load_image(made));
    CHECK(box.left >= 32);
    CHECK(box.right <= 63);
    CHECK(box.top >= 40);
    CHECK(box.bottom <= 69);
    CHECK(box.right - box.left > 20);
    const json event = json::parse(test::lines_of(result.out).back());
    CHECK(event["edit"]["mask"] == files.file("box.png"));
    CHECK(event["edit"]["mask_blend"] == 3);
    CHECK(event["strength"] == 1.0);

    const std::string again = files.file("again.png");
    const auto redone = test::flux2_program({"redo", made, "--no-cache", "-o", again});
    REQUIRE_MESSAGE(redone.exit_code == 0, redone.err);
    CHECK(load_image(again).rgb == load_image(made).rgb);
}

TEST_CASE("a masked edit of a picture with a profile keeps it, and other pictures get sRGB" *
          doctest::skip(!supports_profiles())) {
    const Files files;
    Image source = load_image(files.source());
    source.profile = load_image_with_profile(test::fixture("colour/p3.png")).profile;
    REQUIRE_FALSE(source.profile.empty());
    save_image(files.source(), source);
    const std::string made = files.file("made.png");
    const auto result = edit(files, {"--mask", files.file("box.png"), "-o", made});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    const Image kept = load_image_with_profile(made);
    CHECK(kept.profile == source.profile);
    const Changed box = changed_box(source, kept);
    CHECK(box.left >= 32);
    CHECK(box.right <= 63);
    CHECK(box.right - box.left > 20);
    CHECK(changed_box(load_image(files.source()), load_image(made)).left == box.left);

    const std::string again = files.file("again.png");
    const auto redone = test::flux2_program({"redo", made, "--no-cache", "-o", again});
    REQUIRE_MESSAGE(redone.exit_code == 0, redone.err);
    CHECK(test::read_file(again) == test::read_file(made));

    const std::string whole = files.file("whole.png");
    const auto changed = edit(files, {"--strength", "0.5", "-W", "96", "-H", "96", "-o", whole});
    REQUIRE_MESSAGE(changed.exit_code == 0, changed.err);
    CHECK(load_image_with_profile(whole).profile.empty());
}

TEST_CASE("a mask painted in white on a transparent layer is told with the option that helps") {
    const Files files;
    test::Bytes rows;
    for (int y = 0; y < kSide; ++y) {
        rows.push_back(std::byte{0});
        for (int x = 0; x < kSide; ++x) {
            rows.insert(rows.end(), 2, x < kSide / 2 ? std::byte{255} : std::byte{0});
        }
    }
    test::write_file(files.file("layer.png"), test::png(kSide, kSide, 8, test::grey_alpha, rows));
    const std::string out = files.file("out.png");
    const auto result = edit(files, {"--mask", files.file("layer.png"), "-o", out});
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    CHECK(has(result.err, "layer.png: is painted in white on a transparent layer"));
    CHECK(has(result.err, "use --mask-invert"));
    CHECK(changed_box(load_image(files.source()), load_image(out)).left >= kSide / 2);
}

TEST_CASE("a mask is inverted, widened, narrowed and blurred by options") {
    const Files files;
    const Image before = load_image(files.source());
    const auto box_of = [&](const Arguments& arguments) {
        const std::string out = files.file("out.png");
        const auto result = edit(
            files,
            joined({"--mask", files.file("box.png"), "--mask-blend", "0", "-o", out}, arguments));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
        return changed_box(before, load_image(out));
    };
    CHECK(box_of({"--mask-grow", "5"}).left >= 27);
    CHECK(box_of({"--mask-grow", "5"}).left < 32);
    CHECK(box_of({"--mask-grow", "-5"}).left >= 37);
    CHECK(box_of({"--mask-blur", "6"}).left < 32);
    CHECK(box_of({"--mask-invert"}).left < 16);
    const Changed sharp =
        box_of({"--inpaint-area", "masked", "--inpaint-padding", "8", "-W", "128", "-H", "128"});
    CHECK(sharp.left >= 32);
    CHECK(sharp.bottom <= 69);
}

TEST_CASE("transparent pixels are repainted, of a mask and of the picture itself") {
    const Files files;
    // 96 x 96 pixels of one colour, transparent in the left half.
    test::Bytes rows;
    const auto append = [&](const test::Bytes& more) {
        rows.insert(rows.end(), more.begin(), more.end());
    };
    for (int y = 0; y < kSide; ++y) {
        append(test::bytes({0}));
        for (int x = 0; x < kSide; ++x) {
            append(test::bytes({90, 120, 150, x < kSide / 2 ? 0 : 255}));
        }
    }
    test::write_file(files.file("hole.png"), test::png(kSide, kSide, 8, test::rgb_alpha, rows));
    const Mask mask = load_mask(files.file("hole.png"));
    CHECK(mask.values.front() == 255);
    CHECK(mask.values.back() == 0);

    const std::string out = files.file("out.png");
    for (const std::string& name : {files.file("hole.png"), std::string("alpha")}) {
        const auto result = test::flux2_program(
            joined(parts(), {"-p", "x", "--steps", "1", "-q", "-i", files.file("hole.png"),
                             "--mask", name, "-o", out}));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
        const Changed box = changed_box(load_image(files.file("hole.png")), load_image(out));
        CHECK(box.left < 8);
        CHECK(box.right < kSide / 2);
        CHECK(box.right > kSide / 4);
    }
}

TEST_CASE("a canvas grows by margins or to a size, and redo repeats it") {
    const Files files;
    const std::string by_margins = files.file("margins.png");
    const std::string by_size = files.file("size.png");
    const auto first = edit(files, {"--outpaint", "left=32,bottom=16", "-o", by_margins, "-q"});
    REQUIRE_MESSAGE(first.exit_code == 0, first.err);
    const auto second = edit(files, {"--canvas", "128x112", "--at", "32,0", "-o", by_size, "-q"});
    REQUIRE_MESSAGE(second.exit_code == 0, second.err);
    const Image grown = load_image(by_margins);
    CHECK(grown.width == 128);
    CHECK(grown.height == 112);
    CHECK(load_image(by_size).rgb == grown.rgb);
    const auto redone =
        test::flux2_program({"redo", by_size, "--no-cache", "-o", files.file("again.png")});
    REQUIRE_MESSAGE(redone.exit_code == 0, redone.err);
    CHECK(load_image(files.file("again.png")).rgb == grown.rgb);
}

TEST_CASE("plan counts the picture that is edited as a reference") {
    const Files files;
    // What denoising needs beyond decoding. Both contain what the program itself occupies, which
    // varies by some pages from run to run; the difference does not.
    const auto denoising = [&](const Arguments& more) {
        const auto result = test::flux2_program(joined(
            joined({"plan"}, parts()), joined({"-p", "x", "-i", files.source(), "--json"}, more)));
        REQUIRE_MESSAGE(result.exit_code == 0, result.err);
        const json stages = json::parse(result.out)["stages"];
        const auto bytes = [&](const std::string& name) {
            for (const json& stage : stages) {
                if (stage["stage"] == name) {
                    return stage["host_compute"].get<int64_t>();
                }
            }
            FAIL("no stage ", name);
            return int64_t{0};
        };
        return bytes("transformer") - bytes("decode");
    };
    CHECK(denoising({"--mask", files.file("box.png")}) > denoising({"-W", "96", "-H", "96"}));
}

TEST_CASE("edits that cannot work are refused in one sentence") {
    const Files files;
    struct Refused {
        Arguments arguments;
        int exit_code;
        const char* words;
    };
    const std::string box = files.file("box.png");
    for (const Refused& refused : std::vector<Refused>{
             {{"--mask", files.file("other.png")},
              2,
              "the mask has 96x95 pixels, the picture 96x96"},
             {{"--mask", files.file("empty.png")}, 2, "the mask is empty"},
             {{"--mask", files.file("full.png")}, 2, "the mask covers the whole picture"},
             {{"--mask", files.file("none.png")}, 3, "no such file"},
             {{"--mask", ""}, 2, "--mask is given an empty name"},
             {{"--mask", box, "--mask-grow", "x"}, 2, "--mask-grow takes a whole number"},
             {{"--mask", box, "--mask-grow", "9999"}, 2, "growing a mask by 9999 pixels"},
             {{"--mask", box, "--inpaint-area", "half"}, 2, "use whole or masked"},
             {{"--mask-blur", "4"}, 2, "--mask-blur goes with a mask; add --mask FILE"},
             {{"--mask-blend", "4"}, 2, "--mask-blend goes with a mask"},
             {{"--outpaint", "up=3"}, 2, "use left, top, right and bottom"},
             {{"--outpaint", "left=-3"}, 2, "-3 pixels is out of range"},
             {{"--outpaint", "left=0"}, 2, "0 pixels on all sides"},
             {{"--outpaint", "left=16300"}, 2, "a canvas of 16396x96 is over the limit"},
             {{"--outpaint", "left=9", "--canvas", "200x200"}, 2, "leave out one of them"},
             {{"--canvas", "200"}, 2, "use two numbers such as 1536x1024"},
             {{"--canvas", "50x200"}, 2, "does not lie within a canvas of 50x200"},
             {{"--canvas", "200x200", "--at", "150,0"}, 2, "move the picture with --at X,Y"},
             {{"--at", "1,2"}, 2, "add --canvas"},
             {{"--mask", box, "--match-ref", "1", "-r", files.source()}, 2, "keeps its size"},
         }) {
        CAPTURE(refused.words);
        const auto result = edit(files, joined(refused.arguments, {"-o", files.file("never.png")}));
        CHECK(result.exit_code == refused.exit_code);
        CHECK(has(result.err, refused.words));
        CHECK_FALSE(fs::exists(files.file("never.png")));
    }
    const auto without = test::flux2_program(joined(parts(), {"-p", "x", "--mask", box}));
    CHECK(without.exit_code == 2);
    CHECK(has(without.err, "add --init-img FILE"));
    const auto colours =
        test::flux2_program(joined(test::small_picture(), {"-p", "x", "--keep-colours"}));
    CHECK(colours.exit_code == 2);
    CHECK(has(colours.err, "no picture whose colours could be kept"));
}

TEST_CASE("colours are kept of a reference, and a picture without likeness stays") {
    const Files files;
    const std::string out = files.file("out.png");
    const auto result = test::flux2_program(joined(
        test::small_picture(), {"-p", "x", "-r", files.source(), "--keep-colours", "-o", out}));
    CHECK(result.exit_code == 0);
    CHECK(has(result.err, "its colours stay as they are"));
    CHECK(read_picture_facts(out)["keep_colours"] == true);
}

}  // namespace
}  // namespace flux2::cli
