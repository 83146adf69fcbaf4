#include "verify/recording.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/text_stream.hpp"
#include "base/utf8.hpp"
#include "checkpoints/variant.hpp"
#include "formats/json_file.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <ostream>
#include <utility>

namespace flux2::cli {

Recording::Recording(const std::filesystem::path& file) : source_(TensorSource::open(file)) {}

const TensorInfo& Recording::info(const std::string& name) const {
    const TensorInfo* tensor = source_.find(name);
    check(tensor != nullptr, ErrorKind::bad_file, source_.path().string(), ": tensor ", name,
          " is missing; it is not a recorded run");
    return *tensor;
}

nlohmann::json Recording::settings() const {
    nlohmann::json settings = nlohmann::json::object();
    for (const auto& [key, value] : source_.metadata().entries()) {
        const std::string text = source_.metadata().get_string(key).value_or("");
        nlohmann::json parsed = parse_json(text);
        check(!parsed.is_discarded(), ErrorKind::bad_file, file().string(), ": the setting ", key,
              " is no JSON: ", utf8_start(text, 60), "; a string needs quotes");
        settings[key] = std::move(parsed);
    }
    return settings;
}

std::vector<std::string> Recording::names() const {
    std::vector<std::string> names;
    for (const TensorInfo& tensor : source_.tensors()) {
        names.push_back(tensor.name);
    }
    return names;
}

HostTensor Recording::get(const std::string& name) const {
    return read_tensor(source_, name);
}

std::vector<int32_t> Recording::get_ints(const std::string& name) const {
    constexpr int32_t kMost = 1 << 24;  // F32 represents every integer up to here
    std::vector<int32_t> result;
    for (const float value : get(name).data) {
        check(std::abs(value) <= static_cast<float>(kMost), ErrorKind::bad_file, file().string(),
              ": tensor ", name, " holds ", value, ", expected whole numbers of at most ", kMost);
        result.push_back(static_cast<int32_t>(value));
    }
    return result;
}

std::vector<int64_t> Recording::shape(const std::string& name) const {
    const Shape& shape = info(name).shape;
    std::vector<int64_t> sizes(shape.ne.begin(), shape.ne.begin() + shape.n_dims);
    std::reverse(sizes.begin(), sizes.end());
    return sizes;
}

std::string recorded_variant(const Recording& recording) {
    const std::string model =
        get_json<std::string>(recording.settings(), "model", recording.file()).value_or("");
    for (const char* variant : {"base", "kv", "dev"}) {
        if (contains_word(model, variant)) {
            return variant;
        }
    }
    return "";
}

void Report::print(const std::string& stage, const std::string& name, const std::string& result,
                   bool ok) {
    ++n_compared_;
    n_failed_ += ok ? 0 : 1;
    names_.insert(stage + "/" + name);
    out_ << std::left << std::setw(22) << stage << std::setw(24) << name << " " << result
         << (ok ? "  ok" : "  FAIL") << std::endl;
}

void Report::compare(const std::string& stage, const std::string& name, const HostTensor& ours,
                     const Recording& recording, double limit) {
    const HostTensor recorded = recording.get(name);
    compare_values(stage, name, ours, recorded, limit);
    if (ours.data.size() == recorded.data.size()) {
        add_to_dump(stage + "/" + name, recording.shape(name), ours);
    }
}

void Report::compare_as_named(const std::string& stage, const std::string& name,
                              const HostTensor& ours, const Recording& recording, double limit) {
    const HostTensor recorded = recording.get(name);
    compare_values(stage, name, ours, recorded, limit);
    if (ours.data.size() == recorded.data.size()) {
        add_to_dump(name, recording.shape(name), ours);
    }
}

void Report::add_to_dump(const std::string& name, const std::vector<int64_t>& shape,
                         const HostTensor& values) {
    computed_.push_back({name, shape, values.data});
}

void Report::compare_values(const std::string& stage, const std::string& name,
                            const HostTensor& ours, const HostTensor& other, double limit) {
    if (ours.data.size() != other.data.size()) {
        fail(stage, name,
             concat(ours.data.size(), " values, ", other.data.size(), " were expected"));
        return;
    }
    const double error = relative_error(ours.data, other.data);
    float largest = 0;
    for (size_t i = 0; i < ours.data.size(); ++i) {
        largest = std::max(largest, std::abs(ours.data[i] - other.data[i]));
    }
    TextStream result;
    result << std::scientific << std::setprecision(2) << "rel " << error << "  max " << largest
           << "  limit " << limit;
    print(stage, name, result.str(), error <= limit);
}

void Report::compare_pictures(const std::string& stage, const HostTensor& ours,
                              const HostTensor& recorded, double least_db) {
    if (ours.ne != recorded.ne) {
        fail(stage, "picture",
             concat(ours.ne[0], "x", ours.ne[1], ", ", recorded.ne[0], "x", recorded.ne[1],
                    " was recorded"));
        return;
    }
    const double db = psnr_8_bit(ours.data, recorded.data);
    TextStream result;
    result << std::fixed << std::setprecision(1) << "PSNR " << db << " dB in 8 bits  limit "
           << least_db;
    print(stage, "picture", result.str(), db >= least_db);
}

void Report::expect(const std::string& stage, const std::string& name, bool holds,
                    const std::string& result) {
    print(stage, name, result, holds);
}

void Report::fail(const std::string& stage, const std::string& name, const std::string& reason) {
    print(stage, name, reason, false);
}

bool Report::has(const std::string& stage, const std::string& name) const {
    return names_.contains(stage + "/" + name);
}

void Report::note(const std::string& line) {
    out_ << line << std::endl;
}

void Report::dump(const std::filesystem::path& file) const {
    make_folders_for(file);
    write_safetensors(file, computed_);
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        difference += d * d;
        norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    if (!std::isfinite(difference)) {
        return std::numeric_limits<double>::infinity();
    }
    return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

double psnr_8_bit(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const float d = std::nearbyint(a[i] * 255.0f) - std::nearbyint(b[i] * 255.0f);
        sum += static_cast<double>(d) * static_cast<double>(d);
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (!std::isfinite(sum)) {
        return -kInfinity;
    }
    return sum == 0 ? kInfinity
                    : 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.size()) / sum);
}

HostTensor to_unit_range(HostTensor pixels) {
    for (float& value : pixels.data) {
        value = std::clamp(value / 2 + 0.5f, 0.0f, 1.0f);
    }
    return pixels;
}

}  // namespace flux2::cli
