// References and pictures to start from, from the autoencoder, from memory and from the cache:
// equal, or encoded again.
#include "pipeline/encoded_images.hpp"

#include <flux2/flux2.hpp>
#include "base/log.hpp"
#include "image/image.hpp"
#include "support/cli.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// The klein fixture, its autoencoder in a folder of its own.
struct SmallModel {
    test::TemporaryFolder folder;
    ModelFiles files{test::fixture("klein/flux2.safetensors"), {}, folder / "vae.safetensors"};
    LoadOptions options;

    SmallModel() {
        fs::copy_file(test::fixture("klein/vae.safetensors"), files.vae);
        options.device = "CPU";
        options.threads = 1;
        options.cache_folder = folder / "cache";
    }
    Pipeline load() const { return Pipeline::load(files, options); }
    Pipeline load_without_cache() const {
        LoadOptions without = options;
        without.cache_folder.clear();
        return Pipeline::load(files, without);
    }
};

Image picture(int width, int height, int colour) {
    Image image{width, height, {}};
    for (int i = 0; i < 3 * width * height; ++i) {
        image.rgb.push_back(static_cast<uint8_t>(colour + i % 97));
    }
    return image;
}

Request small_request() {
    Request request;
    request.prompt = "x";
    request.embeds_file = test::few_features();
    request.width = request.height = 64;
    request.steps = 1;
    request.seed = 1;
    return request;
}

Request with_references(const std::vector<Image>& references) {
    Request request = small_request();
    request.references = references;
    return request;
}

struct Made {
    std::vector<uint8_t> pixels;
    int n_cached = 0, n_encoded = 0;
    bool loaded_vae = false;  // before it was denoised
    bool told_encoding = false;
};

Made make(Pipeline& pipeline, const Request& request) {
    Made made;
    bool denoised = false;
    const Result result = pipeline.generate(request, [&](const Step& step) {
        denoised = denoised || step.stage == Stage::denoise;
        made.told_encoding = made.told_encoding || step.stage == Stage::encode_references;
        made.loaded_vae = made.loaded_vae || (!denoised && step.stage == Stage::load &&
                                              step.what == to_string(Part::vae));
        return true;
    });
    made.pixels = result.image.rgb;
    made.n_cached = result.references_cached;
    made.n_encoded = result.references_encoded;
    return made;
}

Made make(Pipeline&& pipeline, const Request& request) {
    return make(pipeline, request);
}

void check_encoded(const Made& made, int n) {
    CHECK(made.n_encoded == n);
    CHECK(made.n_cached == 0);
    CHECK(made.loaded_vae);
}

void check_cached(const Made& made, int n) {
    CHECK(made.n_encoded == 0);
    CHECK(made.n_cached == n);
    CHECK_FALSE(made.loaded_vae);
    CHECK_FALSE(made.told_encoding);
}

std::vector<fs::path> entries_of(const SmallModel& small) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(small.folder / "cache")) {
        files.push_back(entry.path());
    }
    return files;
}

TEST_CASE("references are encoded once, in one process and in the next") {
    const SmallModel small;
    const Request request = with_references({picture(64, 64, 10), picture(96, 64, 80)});
    Pipeline pipeline = small.load();
    const Made first = make(pipeline, request);
    check_encoded(first, 2);
    CHECK(first.told_encoding);
    const Made second = make(pipeline, request);
    check_cached(second, 2);
    const Made next_process = make(small.load(), request);
    check_cached(next_process, 2);
    const Made uncached = make(small.load_without_cache(), request);
    check_encoded(uncached, 2);
    CHECK(first.pixels == uncached.pixels);
    CHECK(second.pixels == uncached.pixels);
    CHECK(next_process.pixels == uncached.pixels);
}

TEST_CASE("a new reference is encoded beside one that was encoded before") {
    const SmallModel small;
    Pipeline pipeline = small.load();
    make(pipeline, with_references({picture(64, 64, 10)}));
    const Made made = make(pipeline, with_references({picture(64, 64, 20), picture(64, 64, 10)}));
    CHECK(made.n_encoded == 1);
    CHECK(made.n_cached == 1);
    CHECK(made.pixels == make(small.load_without_cache(),
                              with_references({picture(64, 64, 20), picture(64, 64, 10)}))
                             .pixels);
}

TEST_CASE("pictures made in one pass count their references as encoded once") {
    const SmallModel small;
    std::vector<Result> made;
    small.load().generate_several(with_references({picture(64, 64, 10)}), 2,
                                  [&](Result result) { made.push_back(std::move(result)); });
    REQUIRE(made.size() == 2);
    CHECK(made[0].references_encoded == 1);
    CHECK(made[0].references_cached == 0);
    CHECK(made[1].references_encoded == 0);
    CHECK(made[1].references_cached == 1);
}

TEST_CASE("without a cache folder encoded references are held in memory alone") {
    const SmallModel small;
    Pipeline pipeline = small.load_without_cache();
    const Request request = with_references({picture(64, 64, 10)});
    check_encoded(make(pipeline, request), 1);
    check_cached(make(pipeline, request), 1);
    check_encoded(make(small.load_without_cache(), request), 1);
    CHECK_FALSE(fs::exists(small.folder / "cache"));
}

TEST_CASE("a picture to start from is encoded once") {
    const SmallModel small;
    Request request = small_request();
    request.steps = 2;
    request.init = InitImage{picture(64, 64, 10), 0.5f};
    Pipeline pipeline = small.load();
    const Made first = make(pipeline, request);
    check_encoded(first, 1);
    check_cached(make(pipeline, request), 1);
    const Made next_process = make(small.load(), request);
    check_cached(next_process, 1);
    CHECK(next_process.pixels == first.pixels);
    // The same pixels as a reference need no autoencoder either.
    check_cached(make(pipeline, with_references({picture(64, 64, 10)})), 1);
}

TEST_CASE("masked edits and KV models find their pictures too") {
    SmallModel small;
    for (const char* variant : {"klein", "kv"}) {
        CAPTURE(variant);
        small.options.variant = variant;
        small.options.cache_folder = small.folder / (std::string("cache-") + variant);
        Request request = with_references({picture(64, 64, 90)});
        request.steps = 2;
        request.init = InitImage{picture(64, 64, 10), {}};
        request.inpaint = Inpaint{.mask = {64, 64, std::vector<uint8_t>(64 * 64, 0)}};
        for (size_t i = 64 * 16; i < 64 * 48; ++i) {
            request.inpaint->mask.values[i] = 255;
        }
        const Made first = make(small.load(), request);
        check_encoded(first, 2);
        const Made second = make(small.load(), request);
        check_cached(second, 2);
        CHECK(second.pixels == first.pixels);
    }
}

TEST_CASE("other pixels, and the same ones in another size, are encoded again") {
    const SmallModel small;
    Pipeline pipeline = small.load();
    const Image before = picture(96, 64, 10);
    make(pipeline, with_references({before}));
    Image changed = before;
    changed.rgb.back() ^= 1;
    Image other_shape = before;
    std::swap(other_shape.width, other_shape.height);
    for (const Image& other : {changed, other_shape}) {
        check_encoded(make(pipeline, with_references({other})), 1);
    }
    // Fitted to another size.
    Request smaller = with_references({picture(128, 128, 10)});
    check_encoded(make(pipeline, smaller), 1);
    smaller.reference_pixels = 64 * 64;
    check_encoded(make(pipeline, smaller), 1);
}

TEST_CASE("another autoencoder encodes references again") {
    const SmallModel small;
    const Request request = with_references({picture(64, 64, 10)});
    const Made before = make(small.load(), request);
    std::vector<test::TestTensor> tensors = test::tensors_of(small.files.vae);
    for (test::TestTensor& tensor : tensors) {
        if (tensor.name == "bn.running_mean") {
            const float moved = 0.5f;
            std::memcpy(tensor.data.data(), &moved, sizeof(moved));
        }
    }
    fs::remove(small.files.vae);
    test::write_file(small.files.vae, test::safetensors_of(tensors));
    const Made after = make(small.load(), request);
    check_encoded(after, 1);
    CHECK(after.pixels != before.pixels);
    CHECK(after.pixels == make(small.load_without_cache(), request).pixels);
}

TEST_CASE("pictures encoded by a file that is replaced in use are not those of the new file") {
    const SmallModel small;
    const Request request = with_references({picture(64, 64, 10)});
    std::vector<test::TestTensor> tensors = test::tensors_of(small.files.vae);
    test::write_file(small.files.vae, test::safetensors_of(tensors));
    const auto time = fs::last_write_time(small.files.vae);
    for (test::TestTensor& tensor : tensors) {
        if (tensor.name == "bn.running_mean") {
            const float moved = 0.5f;
            std::memcpy(tensor.data.data(), &moved, sizeof(moved));
        }
    }
    Pipeline in_use = small.load();
    const Made before = make(small.load_without_cache(), request);
    test::write_file(small.folder / "new", test::safetensors_of(tensors));
    REQUIRE(fs::file_size(small.folder / "new") == fs::file_size(small.files.vae));
    fs::last_write_time(small.folder / "new", time);
    fs::rename(small.folder / "new", small.files.vae);
    const Made by_old = make(in_use, request);
    check_encoded(by_old, 1);
    CHECK(by_old.pixels == before.pixels);
    const Made by_new = make(small.load(), request);
    check_encoded(by_new, 1);
    CHECK(by_new.pixels == make(small.load_without_cache(), request).pixels);
    CHECK(by_new.pixels != by_old.pixels);
    check_cached(make(small.load(), request), 1);
}

TEST_CASE("a damaged picture of the cache is noticed and encoded again") {
    const SmallModel small;
    const Request request = with_references({picture(64, 64, 10)});
    const Made before = make(small.load(), request);
    REQUIRE(entries_of(small).size() == 1);
    const fs::path file = entries_of(small).front();
    const size_t size = test::read_file(file).size();
    for (const size_t at : {size / 4, size / 2, size - 1}) {
        CAPTURE(at);
        test::Bytes bytes = test::read_file(file);
        bytes[at] ^= std::byte{0x01};
        test::write_file(file, bytes);
        int n_told = 0;
        const ScopedLog told([&](LogLevel level, const std::string& line) {
            n_told += level == LogLevel::warning && line.find("is damaged") != std::string::npos;
        });
        const Made again = make(small.load(), request);
        check_encoded(again, 1);
        CHECK(again.pixels == before.pixels);
        CHECK(n_told == 1);
        check_cached(make(small.load(), request), 1);
    }
}

// The store itself, over the same model.
struct Store {
    Model model;
    LoadOptions options;
    LoadedModel loaded_model{model, options};
    TensorCache cache;
    EncodedImages images;

    Store(const SmallModel& small, const LoadOptions& given, size_t max_held)
        : model(open_model(small.files, "")),
          options(given),
          cache(options.cache_folder, options.cache_bytes),
          images(model, loaded_model, cache, max_held) {}
};

TEST_CASE("how and where the autoencoder computes is part of what latents are found by") {
    const SmallModel small;
    const Image image = picture(64, 64, 10);
    Store store(small, small.options, EncodedImages::kMaxHeld);
    const auto cached = [&] { return store.images.get(image).was_cached; };
    CHECK_FALSE(cached());
    CHECK(cached());
    store.loaded_model.set_map_memories({.encode = MapMemory::bands});
    CHECK_FALSE(cached());
    store.loaded_model.set_map_memories({.decode = MapMemory::bands});
    CHECK(cached());
    store.loaded_model.set_placement(Part::vae, Placement::cpu);
    CHECK_FALSE(cached());
    CHECK(cached());
    LoadOptions in_f32 = small.options;
    in_f32.type = "F32";
    Store other(small, in_f32, EncodedImages::kMaxHeld);
    CHECK_FALSE(other.images.get(image).was_cached);
    Store same(small, small.options, EncodedImages::kMaxHeld);
    CHECK(same.images.get(image).was_cached);
}

TEST_CASE("what is held in memory is bounded, and what was used last stays") {
    const SmallModel small;
    LoadOptions options = small.options;
    options.cache_folder.clear();
    const size_t one = [&] {
        Store unbounded(small, options, EncodedImages::kMaxHeld);
        unbounded.images.get(picture(64, 64, 0));
        return unbounded.images.held_bytes();
    }();
    REQUIRE(one > 0);
    Store store(small, options, 2 * one);
    const auto get = [&](int colour) {
        const bool was_cached = store.images.get(picture(64, 64, colour)).was_cached;
        CHECK(store.images.held_bytes() <= 2 * one);
        return was_cached;
    };
    CHECK_FALSE(get(1));
    CHECK_FALSE(get(2));
    CHECK(get(1));
    CHECK_FALSE(get(3));  // takes the place of 2
    CHECK(get(1));
    CHECK_FALSE(get(2));
    // One that is larger than the limit is given but not held.
    const EncodedImage large = store.images.get(picture(192, 64, 4));
    CHECK(large.latents->ne[0] == 12);
    CHECK(store.images.held_bytes() == 0);
}

}  // namespace
}  // namespace flux2
