// Parts of pictures repainted by the bundled model: the change is made, every other byte stays, and
// no edge shows. Larger canvases, recorded runs, and that nothing moves.
#include "image/image.hpp"
#include "image/mask.hpp"
#include "pipeline/denoise.hpp"
#include "pipeline/edit.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/prompt.hpp"
#include "pipeline/request.hpp"
#include "pipeline/sampler.hpp"
#include "support/folders.hpp"
#include "support/picture_book.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <flux2/flux2.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

const fs::path kTiny = test::tiny_model();

Pipeline& tiny_model() {
    static Pipeline pipeline = [] {
        LoadOptions options;
        options.device = "CPU";
        options.keep_loaded = true;
        return Pipeline::load(find_model(kTiny).files, options);
    }();
    return pipeline;
}

struct SourcePicture {
    Image image;
    test::Scene scene;
};

// The pictures before the edits of the fixtures.
const std::vector<SourcePicture>& sources() {
    static const std::vector<SourcePicture> all = [] {
        std::vector<SourcePicture> pictures;
        for (const test::Edit& edit : test::read_edits(test::fixture("tiny/edits.json"))) {
            pictures.push_back({load_image(test::fixture("tiny/" + edit.reference)), edit.before});
        }
        return pictures;
    }();
    return all;
}

// Steps of colour between neighbouring pixels of which one is masked: their mean.
double border_step(const Image& image, const Mask& mask) {
    double sum = 0;
    double n = 0;
    const auto add = [&](int x, int y, int u, int v) {
        const auto i = static_cast<size_t>(y * image.width + x);
        const auto j = static_cast<size_t>(v * image.width + u);
        if ((mask.values[i] > 0) == (mask.values[j] > 0)) {
            return;
        }
        for (size_t c = 0; c < 3; ++c) {
            sum += std::abs(image.rgb[3 * i + c] - image.rgb[3 * j + c]);
        }
        n += 3;
    };
    for (int y = 0; y + 1 < image.height; ++y) {
        for (int x = 0; x + 1 < image.width; ++x) {
            add(x, y, x + 1, y);
            add(x, y, x, y + 1);
        }
    }
    return sum / n;
}

bool same_outside(const Image& a, const Image& b, const Mask& mask) {
    for (size_t i = 0; i < mask.values.size(); ++i) {
        for (size_t c = 0; c < 3; ++c) {
            if (mask.values[i] == 0 && a.rgb[3 * i + c] != b.rgb[3 * i + c]) {
                return false;
            }
        }
    }
    return true;
}

// ---- 24 edits ----

struct MaskedEdit {
    size_t source;
    std::string prompt;
    std::string place;
    std::optional<test::Thing> thing;  // afterwards; none: removed
};

const std::vector<MaskedEdit>& masked_edits() {
    static const std::vector<MaskedEdit> edits = {
        {0, "paint the mushroom red", "left", {{"mushroom", "red", "big"}}},
        {0, "remove the mushroom", "left", {}},
        {0, "add a blue balloon on the right", "right", {{"balloon", "blue", "medium"}}},
        {1, "paint the star purple", "right", {{"star", "purple", "small"}}},
        {1, "remove the star", "right", {}},
        {1, "add a red house on the left", "left", {{"house", "red", "medium"}}},
        {2, "paint the boat yellow", "left", {{"boat", "yellow", "big"}}},
        {2, "remove the rocket", "middle", {}},
        {2, "add a red ball on the right", "right", {{"ball", "red", "medium"}}},
        {3, "paint the flower blue", "right", {{"flower", "blue", "small"}}},
        {3, "paint the flower red", "right", {{"flower", "red", "small"}}},
        {3, "remove the flower", "right", {}},
        {4, "paint the rocket red", "left", {{"rocket", "red", "small"}}},
        {4, "remove the rocket", "left", {}},
        {4, "add a pink heart on the right", "right", {{"heart", "pink", "medium"}}},
        {5, "paint the house blue", "left", {{"house", "blue", "medium"}}},
        {5, "remove the heart", "right", {}},
        {5, "add a red mushroom in the middle", "middle", {{"mushroom", "red", "medium"}}},
        {6, "paint the house purple", "right", {{"house", "purple", "big"}}},
        {6, "remove the house", "right", {}},
        {6, "add a blue ball on the left", "left", {{"ball", "blue", "medium"}}},
        {7, "paint the ball yellow", "middle", {{"ball", "yellow", "big"}}},
        {7, "remove the ball", "middle", {}},
        {7, "add a red star on the left", "left", {{"star", "red", "medium"}}},
    };
    return edits;
}

test::Scene scene_after(const MaskedEdit& edit) {
    test::Scene scene = sources()[edit.source].scene;
    if (edit.thing) {
        scene.things[edit.place] = *edit.thing;
    } else {
        scene.things.erase(edit.place);
    }
    return scene;
}

Mask mask_of(const MaskedEdit& edit) {
    const SourcePicture& source = sources()[edit.source];
    const std::vector<bool> flags =
        test::may_change(source.scene, scene_after(edit), source.image.width, source.image.height);
    Mask mask{source.image.width, source.image.height, {}};
    for (const bool flag : flags) {
        mask.values.push_back(flag ? 255 : 0);
    }
    return mask;
}

// Why a result is not what was asked for; empty when it is.
std::string fault_of(const MaskedEdit& edit, const Image& result) {
    const Image& before = sources()[edit.source].image;
    const Mask mask = mask_of(edit);
    if (const std::string wrong = test::mistakes(result, scene_after(edit)); !wrong.empty()) {
        return wrong;
    }
    if (!same_outside(before, result, mask)) {
        return "changed outside the mask";
    }
    const double growth = border_step(result, mask) - border_step(before, mask);
    return growth < 2 ? "" : "an edge shows: " + std::to_string(growth);
}

Request request_of(const MaskedEdit& edit) {
    Request request;
    request.prompt = edit.prompt;
    request.seed = 1;
    request.init = InitImage{sources()[edit.source].image, {}};
    request.inpaint = Inpaint{.mask = mask_of(edit)};
    return request;
}

TEST_CASE("masked edits do as told and keep everything else") {
    int n_right = 0;
    for (const MaskedEdit& edit : masked_edits()) {
        const Image result = tiny_model().generate(request_of(edit)).image;
        CHECK(same_outside(sources()[edit.source].image, result, mask_of(edit)));
        const std::string fault = fault_of(edit, result);
        n_right += fault.empty() ? 1 : 0;
        if (!fault.empty()) {
            MESSAGE("picture " << edit.source << ", " << edit.prompt << ": " << fault);
        }
    }
    MESSAGE("right: " << n_right << " of " << masked_edits().size());
    CHECK(n_right >= 22);
}

TEST_CASE("a picture from text alone, pasted into the mask, does not pass") {
    int n_right = 0;
    for (size_t i = 0; i < masked_edits().size(); i += 3) {
        const MaskedEdit& edit = masked_edits()[i];
        Request request;
        request.prompt = edit.prompt;
        request.seed = 1;
        const Image drawn = tiny_model().generate(request).image;
        Image pasted = sources()[edit.source].image;
        const Mask mask = mask_of(edit);
        for (size_t p = 0; p < pasted.rgb.size(); ++p) {
            pasted.rgb[p] = mask.values[p / 3] > 0 ? drawn.rgb[p] : pasted.rgb[p];
        }
        n_right += fault_of(edit, pasted).empty() ? 1 : 0;
    }
    CHECK(n_right <= 1);
}

// ---- Large pictures ----

TEST_CASE("a region of a large picture is edited and all its other bytes stay") {
    // A scene of 3000 x 2000 pixels, of which the model sees a part.
    const SourcePicture& source = sources()[0];
    Request request;
    request.init = InitImage{resize_lanczos(source.image, 3000, 2000), {}};
    Mask mask{3000, 2000, std::vector<uint8_t>(3000 * 2000)};
    for (int y = 1100; y < 1400; ++y) {
        for (int x = 1800; x < 2200; ++x) {
            mask.values[static_cast<size_t>(y * 3000 + x)] = 255;
        }
    }
    request.prompt = "add a red ball in the middle";
    request.seed = 2;
    request.inpaint = Inpaint{.mask = mask, .area = InpaintArea::masked};
    const Image result = tiny_model().generate(request).image;
    REQUIRE(result.width == 3000);
    REQUIRE(result.height == 2000);
    CHECK(same_outside(request.init->image, result, mask));
    CHECK(border_step(result, mask) - border_step(request.init->image, mask) < 2);
    // Something happened inside.
    double change = 0;
    for (size_t i = 0; i < result.rgb.size(); ++i) {
        change += std::abs(result.rgb[i] - request.init->image.rgb[i]);
    }
    CHECK(change / (3 * 400 * 300) > 4);
}

// ---- Larger canvases ----

struct Outpainting {
    size_t source;
    int from;  // the first of the columns that are kept; the sky at the border is clear
    bool to_the_right;
    std::string prompt;
    test::Thing thing;
};

const std::vector<Outpainting>& outpaintings() {
    static const std::vector<Outpainting> all = {
        {0, 112, true, "add a red ball on the right", {"ball", "red", "medium"}},
        {4, 100, false, "add a red ball on the left", {"ball", "red", "medium"}},
        {1, 128, true, "add a blue house on the right", {"house", "blue", "medium"}},
        {1, 16, false, "add a blue ball on the left", {"ball", "blue", "medium"}},
        {2, 128, true, "add a red boat on the right", {"boat", "red", "medium"}},
        {2, 100, false, "add a yellow ball on the left", {"ball", "yellow", "medium"}},
        {5, 128, true, "add a purple house on the right", {"house", "purple", "medium"}},
        {5, 100, false, "add a red mushroom on the left", {"mushroom", "red", "medium"}},
        {6, 0, true, "add a purple rocket on the right", {"rocket", "purple", "medium"}},
        {6, 16, false, "add a blue house on the left", {"house", "blue", "medium"}},
        {7, 64, true, "add a red boat on the right", {"boat", "red", "medium"}},
        {7, 64, false, "add a yellow star on the left", {"star", "yellow", "medium"}},
    };
    return all;
}

// Half of a picture, which is to grow by half its width to one side.
Image half_of(const Outpainting& o) {
    return crop(sources()[o.source].image, {o.from, 0, 128, 256});
}

std::string fault_of(const Outpainting& o, const Image& result) {
    const Image half = half_of(o);
    if (crop(result, {o.to_the_right ? 0 : 64, 0, 128, 256}).rgb != half.rgb) {
        return "the picture itself changed";
    }
    const test::Scene& scene = sources()[o.source].scene;
    const Image added = crop(result, {o.to_the_right ? 128 : 0, 0, 64, 256});
    if (test::read_sky(added) != scene.sky || test::read_ground(added) != scene.ground) {
        return "the new part has " + test::read_sky(added) + " and " + test::read_ground(added) +
               ", not " + scene.sky + " and " + scene.ground;
    }
    const std::string colour =
        test::read_colour(result, o.to_the_right ? "right" : "left", o.thing);
    return colour == o.thing.colour ? "" : "a " + colour + " thing, not " + o.thing.colour;
}

TEST_CASE("a picture grows by half, with what is named in the new part") {
    int n_right = 0;
    for (const Outpainting& o : outpaintings()) {
        Request request;
        request.prompt = o.prompt;
        request.seed = 3;
        request.init = InitImage{half_of(o), {}};
        request.outpaint = o.to_the_right ? Outpaint{.right = 64} : Outpaint{.left = 64};
        const Image result = tiny_model().generate(request).image;
        REQUIRE(result.width == 192);
        REQUIRE(result.height == 256);
        const std::string fault = fault_of(o, result);
        n_right += fault.empty() ? 1 : 0;
        if (!fault.empty()) {
            MESSAGE("picture " << o.source << ", " << o.prompt << ": " << fault);
        }
        // The fill that the model starts from is not enough.
        const Edit edit(request, {256, 256}, {}, {});
        CHECK(fault_of(o, edit.model_picture(request.init->image)) != "");
    }
    MESSAGE("right: " << n_right << " of " << outpaintings().size());
    CHECK(n_right >= 10);
}

// ---- Nothing moves ----

double brightness(const Image& image, int x, int y) {
    const auto i = static_cast<size_t>(3 * (y * image.width + x));
    return 0.299 * image.rgb[i] + 0.587 * image.rgb[i + 1] + 0.114 * image.rgb[i + 2];
}

// By how many pixels `b` is shifted against `a`, by least squares over the edges that both have.
std::array<double, 2> shift_between(const Image& a, const Image& b,
                                    const std::vector<bool>& without) {
    double xx = 0;
    double xy = 0;
    double yy = 0;
    double xt = 0;
    double yt = 0;
    for (int y = 2; y < a.height - 2; ++y) {
        for (int x = 2; x < a.width - 2; ++x) {
            if (without[static_cast<size_t>(y * a.width + x)]) {
                continue;
            }
            const double dx = (brightness(a, x + 1, y) - brightness(a, x - 1, y)) / 2;
            const double dy = (brightness(a, x, y + 1) - brightness(a, x, y - 1)) / 2;
            const double dt = brightness(b, x, y) - brightness(a, x, y);
            xx += dx * dx;
            xy += dx * dy;
            yy += dy * dy;
            xt -= dx * dt;
            yt -= dy * dt;
        }
    }
    const double determinant = xx * yy - xy * xy;
    return {(yy * xt - xy * yt) / determinant, (xx * yt - xy * xt) / determinant};
}

TEST_CASE("an edit by reference does not move the picture") {
    const std::vector<test::Edit> edits = test::read_edits(test::fixture("tiny/edits.json"));
    const test::Edit& edit = edits[5];
    const Image before = load_image(test::fixture("tiny/" + edit.reference));
    Request request;
    request.prompt = edit.prompt;
    request.seed = 5;
    request.references = {before};
    const Image after = tiny_model().generate(request).image;
    const std::vector<bool> changed =
        test::may_change(edit.before, edit.after, before.width, before.height);
    const auto [dx, dy] = shift_between(before, after, changed);
    CHECK(std::abs(dx) < 0.5);
    CHECK(std::abs(dy) < 0.5);

    // The measure sees a shift of one pixel.
    const Image moved = crop(extend_edges(after, {.left = 1}), {0, 0, after.width, after.height});
    CHECK(shift_between(before, moved, changed)[0] - dx > 0.5);
}

// ---- Recorded runs ----

TEST_CASE("recorded runs with masks are met") {
    for (const char* name : {"reference", "soft"}) {
        CAPTURE(name);
        const std::string file =
            test::fixture("tiny/inpaint/golden-inpaint-" + std::string(name) + ".safetensors")
                .string();
        const test::ProgramResult result =
            test::run_program(test::flux2_path() + " selftest --replay " + file + " -m " +
                              kTiny.string() + " --device CPU --type F32");
        INFO(result.out << result.err);
        CHECK(result.exit_code == 0);
        CHECK(result.out.find(std::string(name) == "soft" ? "latents_2" : "latents_3") !=
              std::string::npos);
    }
}

}  // namespace
}  // namespace flux2
