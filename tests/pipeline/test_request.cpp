// Defaults and refusals of requests, by the rules in the reference's programs.
#include <flux2/log.hpp>
#include "formats/safetensors.hpp"
#include "pipeline/request.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

namespace flux2 {
namespace {

Model open(const std::string& variant) {
    return open_model(
        {test::fixture("klein/flux2.safetensors"), {}, test::fixture("klein/vae.safetensors")},
        variant);
}

Image grey(int width, int height) {
    return {width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height), 128)};
}

// A request that needs no text encoder.
Request request() {
    Request r;
    r.prompt = "x";
    r.embeds_file = test::fixture("klein/text_encoder.golden.safetensors");
    return r;
}

// Collects warnings while it lives.
class Warnings {
  public:
    Warnings() {
        set_log([this](LogLevel level, const std::string& line) {
            if (level == LogLevel::warning) {
                text_ += line + "\n";
            }
        });
    }
    ~Warnings() { set_log({}); }
    bool mention(const std::string& words) const { return text_.find(words) != std::string::npos; }
    bool none() const { return text_.empty(); }

  private:
    std::string text_;
};

TEST_CASE("each variant has its steps, guidance and passes") {
    const Warnings warnings;
    const Job klein = resolve(request(), open("klein"));
    CHECK(klein.steps == 4);
    CHECK(klein.guidance == 1.0f);
    CHECK(!klein.two_passes);
    CHECK(klein.width == 1024);
    CHECK(klein.height == 1024);
    // spec/sampling.md: 1024 x 1024 in 4 steps.
    const std::vector<double> sigmas = {1.0, 0.967384, 0.908144, 0.767200, 0.0};
    REQUIRE(klein.sigmas.size() == sigmas.size());
    for (size_t i = 0; i < sigmas.size(); ++i) {
        CHECK(static_cast<double>(klein.sigmas[i]) == doctest::Approx(sigmas[i]).epsilon(1e-5));
    }
    const Job base = resolve(request(), open("base"));
    CHECK(base.steps == 50);
    CHECK(base.guidance == 4.0f);
    CHECK(base.two_passes);
    CHECK(resolve(request(), open("kv")).steps == 4);
    CHECK(warnings.none());
}

TEST_CASE("guidance and negative prompts without effect are told") {
    const Warnings warnings;
    Request r = request();
    r.guidance = 3.5f;
    r.negative_prompt = "fog";
    const Job klein = resolve(r, open("klein"));
    CHECK(klein.guidance == 1.0f);
    CHECK(!klein.two_passes);
    CHECK(warnings.mention("3.5 has no effect"));
    CHECK(warnings.mention("negative prompt has no effect"));
    CHECK(resolve(r, open("base")).two_passes);
    r.guidance = 1.0f;
    CHECK(!resolve(r, open("base")).two_passes);
    CHECK(warnings.mention("no effect at guidance 1"));
}

TEST_CASE("sizes that do not fit the grid name the nearest ones, or are rounded") {
    const Model model = open("klein");
    Request r = request();
    r.width = 500;
    r.height = 512;
    const auto error = test::error_of([&] { resolve(r, model); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("496 or 512"));
    r.fit_size = true;
    CHECK(resolve(r, model).width == 496);
    r.width = 505;
    CHECK(resolve(r, model).width == 512);
    for (const int side : {0, -16, 16, 63, 70000}) {
        r.width = side;
        CHECK(test::error_of([&] { resolve(r, model); }).kind == ErrorKind::bad_argument);
    }
}

TEST_CASE("the size follows a reference, within a megapixel") {
    const Model model = open("klein");
    Request r = request();
    r.references = {grey(200, 100), grey(2056, 2056)};
    const Job first = resolve(r, model);
    CHECK(first.width == 192);
    CHECK(first.height == 96);
    r.match_reference = 1;
    const Job second = resolve(r, model);
    CHECK(second.width == 1024);
    CHECK(second.height == 1024);
    // Two references are shrunk to 1024 x 1024 pixels each, one alone to 2024 x 2024.
    CHECK(second.references[1].width == 1024);
    CHECK(second.n_reference_tokens() == 12 * 6 + 64 * 64);
    r.match_reference = 2;
    CHECK(test::error_of([&] { resolve(r, model); }).mentions("there are 2"));
    r.match_reference = 0;
    r.width = 256;
    CHECK(test::error_of([&] { resolve(r, model); }).mentions("both a size"));
}

TEST_CASE("the size of a reference that is asked for is exact when a picture can have it") {
    const Model model = open("klein");
    Request r = request();
    r.references = {grey(1600, 1200), grey(1600, 1210), grey(4112, 1024)};
    const auto size = [&](std::optional<size_t> match) {
        r.match_reference = match;
        const Job job = resolve(r, model);
        return std::pair{job.width, job.height};
    };
    CHECK(size(0) == std::pair{1600, 1200});
    CHECK(size(std::nullopt) == std::pair{1168, 880});  // a megapixel: 1182.4 x 886.8
    CHECK(size(1) == std::pair{1168, 880});
    CHECK(size(2) == std::pair{2048, 496});  // over the longest side: 2051.9 x 511.0
}

TEST_CASE("references are as large as the request allows") {
    const Model model = open("klein");
    Request r = request();
    r.width = r.height = 64;
    r.references = {grey(1600, 1200), grey(640, 640)};
    r.reference_pixels = 0;
    CHECK(resolve(r, model).n_reference_tokens() == 100 * 75 + 40 * 40);
    r.reference_pixels = 512 * 512;
    const Job job = resolve(r, model);
    CHECK(job.n_reference_tokens() == 36 * 27 + 32 * 32);  // 591.2 x 443.4
    const FittedImages images = fit_images(r, job);
    CHECK(images.references[0].width == 576);
    CHECK(images.references[0].height == 432);
    r.reference_pixels = -1;
    CHECK(test::error_of([&] { resolve(r, model); }).kind == ErrorKind::bad_argument);
}

TEST_CASE("a prompt is limited with its sentences, and resolves with them") {
    const Model model = open("klein");
    Request r = request();
    r.references = {grey(64, 64)};
    r.reference_roles = {"style"};
    CHECK(resolve(r, model).prompt == "x. Apply the style from image 1.");
    r.reference_roles = {std::string(1'000'000, 'x') + "{}"};
    CHECK(test::error_of([&] { resolve(r, model); }).mentions("too long"));
}

TEST_CASE("strength drops the first steps of the schedule") {
    const Model model = open("klein");
    Request r = request();
    r.width = r.height = 64;
    r.steps = 8;
    r.init = InitImage{grey(300, 200), 0.5f};
    const Job half = resolve(r, model);
    CHECK(half.steps == 4);
    const std::vector<float> whole = [&] {
        Request plain = r;
        plain.init.reset();
        return resolve(plain, model).sigmas;
    }();
    CHECK(half.sigmas == std::vector<float>(whole.begin() + 4, whole.end()));
    const FittedImages images = fit_images(r, half);
    CHECK(images.init->width == 64);
    CHECK(images.init->height == 64);
    // diffusers: int(max(n - min(n * strength, n), 0)) steps are dropped.
    r.init->strength = 0.9f;
    CHECK(resolve(r, model).steps == 8);
    r.init->strength = 0.05f;
    CHECK(resolve(r, model).steps == 1);
    // In F32 8 - 8 * 1e-9 is 8.
    for (const float tiny : {1e-9f, std::numeric_limits<float>::min()}) {
        r.init->strength = tiny;
        CHECK(resolve(r, model).steps == 1);
        CHECK(resolve(r, model).sigmas == std::vector<float>(whole.end() - 2, whole.end()));
    }
    for (const float wrong : {0.0f, -1.0f, 1.5f}) {
        r.init->strength = wrong;
        CHECK(test::error_of([&] { resolve(r, model); }).mentions("strength"));
    }
}

TEST_CASE("own noise levels are checked and closed with 0") {
    const Model model = open("klein");
    Request r = request();
    r.sigmas = {1.0f, 0.5f};
    const Job job = resolve(r, model);
    CHECK(job.steps == 2);
    CHECK(job.sigmas == std::vector<float>{1.0f, 0.5f, 0.0f});
    r.steps = 3;
    CHECK(test::error_of([&] { resolve(r, model); }).mentions("2 steps, but 3"));
    r.steps.reset();
    for (const std::vector<float>& wrong :
         {std::vector<float>{0.5f, 0.6f}, {1.5f, 0.5f}, {0.0f}, {0.5f, 0.5f, 0.0f}}) {
        r.sigmas = wrong;
        CHECK(test::error_of([&] { resolve(r, model); }).kind == ErrorKind::bad_argument);
    }
}

TEST_CASE("steps, guidance, text length and generator have their ranges") {
    const Model model = open("base");
    const auto refused = [&](const auto& change) {
        Request r = request();
        change(r);
        return test::error_of([&] { resolve(r, model); }).kind == ErrorKind::bad_argument;
    };
    CHECK(refused([](Request& r) { r.steps = 0; }));
    CHECK(refused([](Request& r) { r.steps = 100000; }));
    CHECK(refused([](Request& r) { r.guidance = -1.0f; }));
    CHECK(refused([](Request& r) { r.guidance = 1e9f; }));
    CHECK(refused([](Request& r) { r.text_length = 0; }));
    CHECK(refused([](Request& r) { r.text_length = 1 << 20; }));
    CHECK(refused([](Request& r) { r.generator = "dice"; }));
    CHECK(refused([](Request& r) { r.references = {grey(10, 10)}; }));
}

TEST_CASE("recorded features bring their own length") {
    const test::TemporaryFolder folder;
    Request r = request();
    CHECK(resolve(r, open("klein")).text_length == 512);
    r.embeds_file = folder / "short.safetensors";
    write_safetensors(r.embeds_file,
                      {{"prompt_embeds", {1, 40, 192}, std::vector<float>(40 * 192)}});
    CHECK(resolve(r, open("klein")).text_length == 40);
    CHECK(test::error_of([&] { resolve(r, open("base")); }).mentions("negative_prompt_embeds"));
}

TEST_CASE("a prompt needs a text encoder") {
    Request r = request();
    r.embeds_file.clear();
    const auto error = test::error_of([&] { resolve(r, open("klein")); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("add `text_encoder` FILE"));
}

}  // namespace
}  // namespace flux2
