// The limits of comparisons with recordings: what a wrong result would look like fails in every
// type.
#include "verify/limits.hpp"

#include "formats/tensor_type.hpp"
#include "image/image.hpp"
#include "support/support.hpp"
#include "verify/recording.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using Strings = std::set<std::string>;

// With these the bundled models draw other pictures than in F32 (docs/numerics.md).
const Strings kTooCoarse = {"Q2_K", "Q2_0", "IQ3_XXS", "IQ2_S", "IQ1_M", "TQ1_0", "TQ2_0", "Q1_0"};

std::vector<TensorType> judged_types() {
    std::vector<TensorType> types = matrix_types();
    std::erase_if(types, [](TensorType type) { return kTooCoarse.contains(type_name(type)); });
    return types;
}

HostTensor picture(const std::string& recording) {
    return cli::to_unit_range(
        to_planes(load_image(test::fixture("tiny/" + recording + ".png").string())));
}

// Every pixel of the recorded picture's mean colour.
HostTensor mean_colour(HostTensor pixels) {
    const size_t n = pixels.data.size() / 3;
    for (size_t channel = 0; channel < 3; ++channel) {
        const auto begin = pixels.data.begin() + static_cast<std::ptrdiff_t>(channel * n);
        const auto end = begin + static_cast<std::ptrdiff_t>(n);
        double sum = 0;
        std::for_each(begin, end, [&](float value) { sum += static_cast<double>(value); });
        std::fill(begin, end, static_cast<float>(sum / static_cast<double>(n)));
    }
    return pixels;
}

bool passes(const HostTensor& ours, const HostTensor& recorded, double limit) {
    std::ostringstream lines;
    cli::Report report(lines);
    report.compare_values("stage", "name", ours, recorded, limit);
    CHECK(report.n_compared() == 1);
    return report.n_failed() == 0;
}

bool picture_passes(const HostTensor& ours, const HostTensor& recorded, double least_db) {
    std::ostringstream lines;
    cli::Report report(lines);
    report.compare_pictures("stage", ours, recorded, least_db);
    CHECK(report.n_compared() == 1);
    return report.n_failed() == 0;
}

TEST_CASE("in every type zeros fail, and so do values of twice the size") {
    const Backend cpu("CPU", 1);
    const cli::Recording recording(test::fixture("tiny/golden-t2i.safetensors"));
    for (const TensorType type : judged_types()) {
        CAPTURE(type_name(type));
        const cli::Limits limits = cli::limits_for(cpu, type);
        const auto check_fails = [&](const char* name, double limit, float scale) {
            CAPTURE(std::string(name));
            CAPTURE(scale);
            const HostTensor recorded = recording.get(name);
            CHECK(passes(recorded, recorded, limit));
            HostTensor wrong = recorded;
            for (float& value : wrong.data) {
                value *= scale;
            }
            CHECK_FALSE(passes(wrong, recorded, limit));
        };
        for (const float scale : {0.0f, 2.0f}) {
            check_fails("prompt_embeds", limits.text, scale);
            check_fails("latents_0", limits.first_step, scale);
            check_fails("latents_3", limits.run, scale);
            check_fails("latents_3", limits.stage, scale);
            check_fails("latents_3", limits.autoencoder, scale);
        }
    }
}

TEST_CASE("in every type black, grey, the mean colour and other prompts' pictures fail") {
    const Backend cpu("CPU", 1);
    const std::array<std::string, 3> names = {"golden-t2i", "golden-edit", "golden-base"};
    for (const TensorType type : judged_types()) {
        CAPTURE(type_name(type));
        const double least_db = cli::limits_for(cpu, type).psnr;
        for (const std::string& name : names) {
            CAPTURE(name);
            const HostTensor recorded = picture(name);
            CHECK(picture_passes(recorded, recorded, least_db));
            HostTensor flat = recorded;
            for (const float grey : {0.0f, 0.5f}) {
                std::fill(flat.data.begin(), flat.data.end(), grey);
                CHECK_FALSE(picture_passes(flat, recorded, least_db));
            }
            CHECK_FALSE(picture_passes(mean_colour(recorded), recorded, least_db));
            for (const std::string& other : names) {
                if (other != name) {
                    CHECK_FALSE(picture_passes(picture(other), recorded, least_db));
                }
            }
        }
    }
}

TEST_CASE("a type with which the recorded model draws something else is refused") {
    const Backend cpu("CPU", 1);
    for (const TensorType type : matrix_types()) {
        const std::string name = type_name(type);
        if (kTooCoarse.contains(name)) {
            CAPTURE(name);
            const auto error = test::error_of([&] { cli::limits_for(cpu, type); });
            CHECK(error.kind == ErrorKind::bad_argument);
            CHECK(error.mentions(name));
            CHECK(error.mentions("use Q3_K"));
        }
    }
}

}  // namespace
}  // namespace flux2
