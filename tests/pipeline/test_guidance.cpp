// Guidance on every kind of model: what a request resolves to, and the passes of the steps against
// uncond + scale * (cond - uncond) of separate calls of the transformer.
#include "pipeline/guidance.hpp"

#include <flux2/log.hpp>
#include "checkpoints/inventory.hpp"
#include "pipeline/denoise.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/prompt.hpp"
#include "support/support.hpp"
#include "support/values.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// Model files of each variant, and the lines that are logged.
class Guided {
  public:
    Guided() {
        test::write_dev_like(folder_ / "dev.safetensors");
        set_log([this](LogLevel level, const std::string& line) {
            warnings += level == LogLevel::warning ? line + "\n" : "";
        });
    }
    ~Guided() { set_log({}); }

    fs::path file(const std::string& variant) const {
        return variant == "dev" ? folder_ / "dev.safetensors"
                                : test::fixture("klein/flux2.safetensors");
    }

    Job resolve(const std::string& variant, const Request& changes) {
        warnings.clear();
        Request request = changes;
        request.prompt = "x";
        request.embeds_file = test::fixture("klein/text_encoder.golden.safetensors");
        return flux2::resolve(
            request,
            open_model({file(variant), {}, test::fixture("klein/vae.safetensors")}, variant));
    }

    test::CaughtError refused(const std::string& variant, const Request& changes) {
        const auto error = test::error_of([&] { resolve(variant, changes); });
        CHECK(error.kind == ErrorKind::bad_argument);
        return error;
    }

    bool warned(const std::string& words) const {
        return warnings.find(words) != std::string::npos;
    }

    std::string warnings;

  private:
    test::TemporaryFolder folder_;
};

Request with(std::optional<float> guidance, std::optional<float> cfg_scale,
             GuidanceInterval interval = {}) {
    Request request;
    request.guidance = guidance;
    request.cfg_scale = cfg_scale;
    request.guidance_interval = interval;
    request.steps = 4;
    return request;
}

TEST_CASE("on a base model guidance and cfg_scale are the same") {
    Guided guided;
    for (const Request& request : {with(6.0f, {}), with({}, 6.0f), with(6.0f, 6.0f)}) {
        const Job job = guided.resolve("base", request);
        CHECK(job.guidance == 6.0f);
        CHECK(job.cfg_scale == 6.0f);
        CHECK(job.two_passes);
        CHECK(job.n_passes() == 8);
        CHECK(guided.warnings == "");
        CHECK_FALSE(guided.warned("two passes"));
    }
    CHECK(guided.resolve("base", with({}, {})).cfg_scale == 4.0f);
    const Job one_pass = guided.resolve("base", with(0.5f, {}));
    CHECK(one_pass.guidance == 0.5f);
    CHECK(one_pass.cfg_scale == 1.0f);
    CHECK(!one_pass.two_passes);
    CHECK(guided.refused("base", with(4.0f, 6.0f))
              .mentions("a guidance of 4 and `cfg_scale` 6 are given"));
}

TEST_CASE("on a distilled model only cfg_scale makes two passes") {
    Guided guided;
    for (const char* variant : {"klein", "kv"}) {
        Request request = with(3.5f, {});
        request.negative_prompt = "fog";
        const Job plain = guided.resolve(variant, request);
        CHECK(plain.guidance == 1.0f);
        CHECK(!plain.two_passes);
        CHECK(guided.warned("3.5 has no effect"));
        CHECK(guided.warned(
            "the negative prompt has no effect; a `cfg_scale` above 1 makes a second pass"));

        request = with({}, 2.5f);
        request.negative_prompt = "fog";
        const Job two = guided.resolve(variant, request);
        CHECK(two.guidance == 1.0f);
        CHECK(two.cfg_scale == 2.5f);
        CHECK(two.two_passes);
        CHECK_FALSE(guided.warned("no effect"));
        CHECK(guided.warned("`cfg_scale` 2.5 makes two passes per step"));

        for (const float one : {0.0f, 0.5f, 1.0f}) {
            const Job job = guided.resolve(variant, with({}, one));
            CHECK(!job.two_passes);
            CHECK(job.cfg_scale == 1.0f);
            CHECK_FALSE(guided.warned("two passes"));
        }
    }
}

TEST_CASE("dev keeps its embedded guidance beside cfg_scale") {
    Guided guided;
    const Job one = guided.resolve("dev", with(3.0f, {}));
    CHECK(one.guidance == 3.0f);
    CHECK(one.cfg_scale == 1.0f);
    CHECK(!one.two_passes);
    const Job two = guided.resolve("dev", with(3.0f, 2.0f));
    CHECK(two.guidance == 3.0f);
    CHECK(two.cfg_scale == 2.0f);
    CHECK(two.two_passes);
    CHECK(guided.warned("two passes per step"));
    Request negative = with({}, {});
    negative.negative_prompt = "fog";
    CHECK(guided.resolve("dev", negative).guidance == 4.0f);
    CHECK(guided.warned("has its guidance built in: the negative prompt has no effect"));
}

TEST_CASE("a step has two passes when its share lies within the interval") {
    Guided guided;
    const Job half = guided.resolve("klein", with({}, 3.0f, {0.0f, 0.5f}));
    CHECK(half.guided_steps.first == 0);
    CHECK(half.guided_steps.end == 2);
    CHECK(half.n_passes() == 6);
    const Job late = guided.resolve("base", with({}, {}, {0.25f, 0.3f}));
    CHECK(late.guided_steps.first == 1);
    CHECK(late.guided_steps.end == 2);
    CHECK(late.n_passes() == 5);
    // 3/5 is 0.6, whatever both are in binary.
    for (size_t n = 1; n <= 100; ++n) {
        for (size_t i = 0; i < n; ++i) {
            const float share = static_cast<float>(static_cast<double>(i) / static_cast<double>(n));
            CHECK(steps_within(share, 1.0f, n).first == i);
        }
    }
    const Job none = guided.resolve("klein", with({}, 3.0f, {0.9f, 1.0f}));
    CHECK(!none.two_passes);
    CHECK(none.n_passes() == 4);
    CHECK(guided.warned("none of the 4 steps begins from 0.9 until 1"));
    guided.resolve("klein", with({}, {}, {0.0f, 0.5f}));
    CHECK(guided.warned("guidance from 0 until 0.5 has no effect with one pass per step"));
}

TEST_CASE("scales and intervals out of range are refused") {
    Guided guided;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float scale : {-1.0f, 1000.0f, nan}) {
        CHECK(guided.refused("klein", with({}, scale)).mentions("`cfg_scale`"));
    }
    for (const GuidanceInterval interval : {GuidanceInterval{0.5f, 0.5f},
                                            {0.6f, 0.5f},
                                            {-0.1f, 0.5f},
                                            {0.0f, 1.1f},
                                            {nan, 1.0f},
                                            {0.0f, nan}}) {
        CHECK(guided.refused("klein", with({}, 2.0f, interval)).mentions("share of the steps"));
    }
}

// ---- The passes ----

constexpr int64_t kSide = 2;
constexpr float kScale = 3.0f;
constexpr float kEmbedded = 2.5f;
// Without the roundings of the multiplies that a CPU has for 16 bits: one pass may take others than
// two, and their difference counts kScale times.
const WeightOptions kExact = {.type = TensorType::f32};
constexpr StepRange kLate{1, 3};

HostTensor random_tokens(int64_t channels, int64_t n, uint32_t seed) {
    HostTensor x({channels, n, 1, 1});
    x.data = test::even_values(x.data.size(), seed, 1.07f);
    return x;
}

struct Passes {
    explicit Passes(const fs::path& file) : checkpoint(Checkpoint::open(file)) {
        const fs::path texts = test::fixture("klein/text_encoder.golden.safetensors");
        conditioning.txt = share(read_features(texts, "prompt_embeds"));
        conditioning.negative_txt = share(read_features(texts, "negative_prompt_embeds"));
    }

    void add_reference() {
        conditioning.references.push_back(
            from_tokens(random_tokens(transformer.sizes().channels, 6, 9), 3, 2));
    }

    // One pass of a transformer that has kept nothing.
    HostTensor plain(const HostTensor& x, float sigma, const SharedTensor& txt,
                     ReferenceMode mode) {
        TransformerInput input;
        input.img = x;
        input.img_pos = image_positions(kSide, kSide);
        input.txt = txt;
        input.txt_pos = text_positions(txt->ne[1]);
        input.timestep = sigma;
        input.guidance = kEmbedded;
        if (!conditioning.references.empty()) {
            input.ref = to_tokens(conditioning.references[0]);
            input.ref_pos = image_positions(3, 2, reference_time(0));
        }
        return Transformer(backend, read_transformer_sizes(checkpoint), checkpoint, kExact)
            .predict(input, mode);
    }

    // Four steps: those of `guided_steps` must be what two separate passes make, the others what
    // one makes; also when both are computed as one.
    void check_steps(StepRange guided_steps, ReferenceMode mode) {
        check_steps(guided_steps, mode, /*one_pass=*/false);
        check_steps(guided_steps, mode, /*one_pass=*/true);
    }

    void check_steps(StepRange guided_steps, ReferenceMode mode, bool one_pass) {
        CAPTURE(one_pass);
        Denoiser denoiser(transformer, conditioning, kSide, kSide,
                          {.guidance = kEmbedded,
                           .cfg_scale = kScale,
                           .guided_steps = guided_steps,
                           .one_pass = one_pass,
                           .kv_references = mode == ReferenceMode::extract});
        const int64_t channels = transformer.sizes().channels;
        for (size_t step = 0; step < 4; ++step) {
            CAPTURE(step);
            const HostTensor x =
                random_tokens(channels, kSide * kSide, static_cast<uint32_t>(step));
            const float sigma = 1.0f - 0.2f * static_cast<float>(step);
            const HostTensor cond = plain(x, sigma, conditioning.txt, mode);
            const HostTensor uncond = plain(x, sigma, conditioning.negative_txt, mode);
            const HostTensor found = denoiser.velocity(x, sigma, step);
            double error = 0, effect = 0;
            for (size_t i = 0; i < found.data.size(); ++i) {
                const bool guided = guided_steps.first <= step && step < guided_steps.end;
                const float expected =
                    guided ? uncond.data[i] + kScale * (cond.data[i] - uncond.data[i])
                           : cond.data[i];
                error = std::max(error, std::abs(static_cast<double>(found.data[i] - expected)));
                effect =
                    std::max(effect, std::abs(static_cast<double>(cond.data[i] - uncond.data[i])));
            }
            // Kept keys and values may be rounded to F16; the texts make a far larger difference.
            CHECK(error < 2e-3);
            CHECK(effect > 2e-2);
        }
    }

    Backend backend{"CPU"};
    Checkpoint checkpoint;
    Transformer transformer{backend, read_transformer_sizes(checkpoint), checkpoint, kExact};
    Conditioning conditioning;
};

TEST_CASE("two passes of a distilled model are combined by cfg_scale") {
    Passes passes(test::fixture("klein/flux2.safetensors"));
    passes.check_steps({}, ReferenceMode::joint);
    passes.add_reference();
    passes.check_steps(kLate, ReferenceMode::joint);
}

TEST_CASE("two passes of a dev-like model both have its embedded guidance") {
    const test::TemporaryFolder folder;
    test::write_dev_like(folder / "dev.safetensors");
    Passes passes(folder / "dev.safetensors");
    REQUIRE(passes.transformer.sizes().guidance);
    passes.check_steps({}, ReferenceMode::joint);
    passes.check_steps(kLate, ReferenceMode::joint);
}

TEST_CASE("both passes of a KV model have the references, from the first step or later") {
    Passes passes(test::fixture("klein/flux2.safetensors"));
    passes.add_reference();
    passes.check_steps({}, ReferenceMode::extract);
    passes.check_steps(kLate, ReferenceMode::extract);
}

// ---- Whole pictures ----

Result draw(const std::string& variant, Request request, const Progress& progress = {}) {
    LoadOptions options;
    options.device = "CPU";
    options.variant = variant;
    Pipeline pipeline = Pipeline::load(
        {test::fixture("klein/flux2.safetensors"), {}, test::fixture("klein/vae.safetensors")},
        options);
    request.prompt = "x";
    request.embeds_file = test::fixture("klein/text_encoder.golden.safetensors");
    request.width = request.height = 64;
    request.steps = 2;
    request.seed = 1;
    return pipeline.generate(request, progress);
}

TEST_CASE("a base model draws the same with guidance and with cfg_scale") {
    const Result by_guidance = draw("base", with(3.0f, {}));
    const Result by_scale = draw("base", with({}, 3.0f));
    CHECK(by_guidance.image.rgb == by_scale.image.rgb);
    CHECK(by_guidance.guidance == 3.0f);
    CHECK(by_guidance.cfg_scale == 3.0f);
    CHECK(by_scale.guidance == 3.0f);
}

TEST_CASE("progress counts the passes of an interval, and the result names the scale") {
    for (const float until : {0.5f, 1.0f}) {
        std::vector<double> shares;
        const Result result = draw("klein", with({}, 2.0f, {0.0f, until}), [&](const Step& step) {
            if (step.stage == Stage::denoise) {
                shares.push_back(step.share);
            }
            return true;
        });
        CHECK(result.cfg_scale == 2.0f);
        CHECK(result.guidance == 1.0f);
        CHECK(std::is_sorted(shares.begin(), shares.end()));
        REQUIRE(!shares.empty());
        CHECK(shares.back() == doctest::Approx(1.0));
    }
}

}  // namespace
}  // namespace flux2
