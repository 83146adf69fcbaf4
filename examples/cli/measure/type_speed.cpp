#include "measure/type_speed.hpp"

#include "base/byte_size.hpp"
#include "base/random.hpp"
#include "base/text_stream.hpp"
#include "formats/tensor_type.hpp"
#include "measure/raw_speed.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iterator>

namespace flux2::cli {
namespace {

constexpr int64_t kWidth = 3072;  // of klein 4B
constexpr int64_t kRows = 9216;   // of its qkv matrices
constexpr int64_t kTokens = 768;  // of a picture of 256x256 with its text
constexpr double kFine = 0.01;    // an error that does not change pictures visibly
constexpr double kCoarse = 0.1;   // an error that changes details
constexpr double kAsFast = 0.95;  // of a speed: as good as that speed

double quantisation_error(TensorType type) {
    constexpr int64_t kSampleRows = 64;
    const std::vector<float> values =
        draw_normal(Generator::cpu_f32, 1, static_cast<size_t>(kWidth * kSampleRows));
    std::vector<std::byte> encoded(data_bytes(type, kWidth * kSampleRows));
    from_f32(type, values, kWidth, encoded);
    std::vector<float> decoded(values.size());
    to_f32(type, encoded, decoded);
    double difference = 0;
    double total = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        const auto x = static_cast<double>(values[i]);
        const double d = static_cast<double>(decoded[i]) - x;
        difference += d * d;
        total += x * x;
    }
    return std::sqrt(difference / total);
}

// The fastest whose error is within the limit.
const TypeSpeed* fastest(const std::vector<TypeSpeed>& types, double limit) {
    const auto found = std::find_if(types.begin(), types.end(),
                                    [&](const TypeSpeed& t) { return t.error <= limit; });
    return found != types.end() ? &*found : nullptr;
}

bool is_slower(const TypeSpeed& a, const TypeSpeed& b) {
    return a.flops < b.flops;
}

}  // namespace

std::vector<TypeSpeed> measure_types(const Backend& backend, bool repacks) {
    std::vector<TypeSpeed> result;
    for (const char* name : {"F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q5_0", "Q4_K", "Q4_1", "Q4_0",
                             "IQ4_NL", "Q3_K", "Q2_K"}) {
        const TensorType type = parse_matrix_type(name);
        if (type == TensorType::bf16 && !backend.multiplies_bf16()) {
            continue;  // becomes F16 when it is loaded
        }
        const MatMul shape = {static_cast<ggml_type>(type), kWidth, kRows, kTokens};
        const auto seconds =
            raw_seconds(backend, {.flops = shape.flops(), .mat_muls = {{shape, 1}}}, repacks);
        if (seconds) {
            result.push_back({name, 8.0 * static_cast<double>(data_bytes(type, kWidth)) / kWidth,
                              shape.flops() / *seconds, quantisation_error(type)});
        }
    }
    std::sort(result.begin(), result.end(),
              [](const TypeSpeed& a, const TypeSpeed& b) { return a.flops > b.flops; });
    return result;
}

std::string to_text(const std::vector<TypeSpeed>& types) {
    TextStream out;
    out << "type    bits  GFLOP/s    error\n" << std::fixed;
    for (const TypeSpeed& t : types) {
        out << std::left << std::setw(7) << t.type << std::right << std::setprecision(1)
            << std::setw(5) << t.bits << std::setprecision(0) << std::setw(9) << t.flops / 1e9
            << std::setprecision(4) << std::setw(9) << t.error << "\n";
    }
    if (const TypeSpeed* fine = fastest(types, kFine)) {
        out << "fastest with pictures as good as the original's: " << fine->type << "\n";
    }
    if (const TypeSpeed* coarse = fastest(types, kCoarse)) {
        out << "fastest where details may change: " << coarse->type << "\n";
    }
    return out.str();
}

uint64_t TypeNeed::bytes_of(const TypeSpeed& type) const {
    return static_cast<uint64_t>(static_cast<double>(n_weights) * type.bits / 8);
}

TypeProposal propose_type(const std::vector<TypeSpeed>& types, const TypeNeed& need) {
    const auto keep = [](const std::vector<TypeSpeed>& from, auto&& condition) {
        std::vector<TypeSpeed> kept;
        std::copy_if(from.begin(), from.end(), std::back_inserter(kept), condition);
        return kept;
    };
    std::vector<TypeSpeed> fitting = keep(types, [&](const TypeSpeed& t) {
        return need.usable_bytes == 0 || need.bytes_of(t) <= need.usable_bytes;
    });
    if (fitting.empty()) {
        const TypeSpeed smallest = *std::min_element(
            types.begin(), types.end(),
            [](const TypeSpeed& a, const TypeSpeed& b) { return a.bits < b.bits; });
        return {.type = smallest, .fastest = smallest, .fits = false};
    }
    const auto faithful = keep(fitting, [](const TypeSpeed& t) { return t.error <= kCoarse; });
    if (!faithful.empty()) {
        fitting = faithful;
    }
    const TypeSpeed fastest = *std::max_element(fitting.begin(), fitting.end(), is_slower);
    const auto as_fast =
        keep(fitting, [&](const TypeSpeed& t) { return t.flops >= kAsFast * fastest.flops; });
    const TypeSpeed best =
        *std::min_element(as_fast.begin(), as_fast.end(),
                          [](const TypeSpeed& a, const TypeSpeed& b) { return a.error < b.error; });
    return {.type = best, .fastest = fastest};
}

std::string to_text(const TypeProposal& proposal, const TypeNeed& need) {
    std::string text = "proposal: " + proposal.type.type + " (" + need.model + " takes " +
                       gigabytes(need.bytes_of(proposal.type));
    if (need.usable_bytes > 0) {
        text += " of " + gigabytes(need.usable_bytes);
    }
    if (!proposal.fits) {
        return text + "; no type fits, and this is the smallest)\n";
    }
    return text + (proposal.type.type == proposal.fastest.type
                       ? "; the fastest that fits)\n"
                       : "; more precise than " + proposal.fastest.type +
                             ", the fastest that fits, and at most 5 % slower)\n");
}

}  // namespace flux2::cli
