#include "train/training_state.hpp"

#include "base/check.hpp"
#include "base/hash.hpp"
#include "base/parse_number.hpp"
#include "base/utf8.hpp"
#include "formats/json_file.hpp"
#include "formats/safetensors.hpp"
#include "formats/tensor_source.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "flux2 training state 1";
constexpr size_t kStepDigits = 8;

// The arrays of a state under their names in the file.
std::vector<TensorBytes> arrays_of(const TrainingStateView& state) {
    std::vector<TensorBytes> arrays;
    const auto add = [&](const std::string& name, const auto& values) {
        if (!values.empty()) {
            const bool is_float = sizeof(values[0]) == sizeof(float);
            arrays.push_back({name,
                              is_float ? TensorType::f32 : TensorType::u8,
                              {static_cast<int64_t>(values.size())},
                              std::as_bytes(std::span(values))});
        }
    };
    const auto add_moments = [&](const std::string& name, const AdamW::Moments& moments) {
        add(name, moments.values);
        add(name + ".codes", moments.codes);
        add(name + ".largest", moments.largest);
    };
    add("parameters", state.parameters);
    add_moments("optimiser.mean", state.optimiser.mean);
    add_moments("optimiser.square", state.optimiser.square);
    add("average", state.average);
    return arrays;
}

std::string checksum(const TrainingStateView& state, const std::string& settings) {
    Hash hash;
    hash.add(concat(state.n_steps, " ", state.optimiser.n_steps)).add(settings);
    for (const TensorBytes& array : arrays_of(state)) {
        hash.add(array.name);
        hash.add(array.bytes);
    }
    return hash.hex();
}

std::string name_of(const std::string& name, int64_t step, const char* extension) {
    std::string digits = std::to_string(step);
    digits.insert(0, kStepDigits - std::min(digits.size(), kStepDigits), '0');
    return concat(name, "-step", digits, extension);
}

std::string metadata_text(const TensorSource& source, const char* key) {
    const std::optional<std::string> text = source.metadata().get_string(key);
    check(text.has_value(), ErrorKind::bad_file, source.path().string(), ": it has no ", key,
          " and is no state of a training run");
    return *text;
}

// Names of files may not be UTF-8.
RunSettings in_utf8(const RunSettings& settings) {
    RunSettings valid;
    for (const auto& [name, value] : settings) {
        valid[as_utf8(name)] = as_utf8(value);
    }
    return valid;
}

// Empty where the file has none.
std::vector<float> floats(const TensorSource& source, const std::string& name) {
    return source.find(name) == nullptr ? std::vector<float>() : read_tensor(source, name).data;
}

AdamW::Moments moments(const TensorSource& source, const std::string& name) {
    AdamW::Moments read = {floats(source, name), {}, floats(source, name + ".largest")};
    if (const TensorInfo* codes = source.find(name + ".codes"); codes != nullptr) {
        check(codes->type == TensorType::u8, ErrorKind::bad_file, source.path().string(),
              ": its codes are damaged; use an earlier state");
        read.codes.resize(codes->bytes.size());
        std::memcpy(read.codes.data(), codes->bytes.data(), codes->bytes.size());
    }
    return read;
}

}  // namespace

TrainingStateView view_of(const TrainingState& state) {
    return {state.n_steps, state.settings, state.parameters, state.optimiser, state.average};
}

void write_state(const fs::path& file, const TrainingStateView& state) {
    const std::string settings = nlohmann::json(in_utf8(state.settings)).dump();
    write_safetensors(file, arrays_of(state),
                      {{"format", kFormat},
                       {"steps", std::to_string(state.n_steps)},
                       {"optimiser_steps", std::to_string(state.optimiser.n_steps)},
                       {"settings", settings},
                       {"checksum", checksum(state, settings)}});
}

TrainingState read_state(const fs::path& file) {
    const TensorSource source = TensorSource::open(file);
    check(source.metadata().get_string("format") == kFormat, ErrorKind::bad_file, file.string(),
          ": this is no state of a training run; they are named like NAME-step00000100.state");
    TrainingState state;
    const std::string settings = metadata_text(source, "settings");
    state.n_steps = parse_int(file.string(), metadata_text(source, "steps"));
    state.optimiser.n_steps = parse_int(file.string(), metadata_text(source, "optimiser_steps"));
    const nlohmann::json object = parse_json(settings);
    check(object.is_object(), ErrorKind::bad_file, file.string(), ": its settings are damaged");
    for (const auto& [name, value] : object.items()) {
        state.settings[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
    state.parameters = floats(source, "parameters");
    state.optimiser.mean = moments(source, "optimiser.mean");
    state.optimiser.square = moments(source, "optimiser.square");
    state.average = floats(source, "average");
    check(checksum(view_of(state), settings) == metadata_text(source, "checksum"),
          ErrorKind::bad_file, file.string(),
          ": the file is damaged (its checksum differs); use an earlier state");
    return state;
}

void check_same_settings(const RunSettings& stored, const RunSettings& given,
                         const fs::path& file) {
    const RunSettings now = in_utf8(given);
    std::string differences;
    const auto add = [&](const std::string& name, const std::string& before,
                         const std::string& after) {
        differences += concat(differences.empty() ? "" : ", ", name, " ", before, " -> ", after);
    };
    for (const auto& [name, value] : stored) {
        const auto found = now.find(name);
        if (found == now.end() || found->second != value) {
            add(name, value, found == now.end() ? "none" : found->second);
        }
    }
    for (const auto& [name, value] : now) {
        if (!stored.contains(name)) {
            add(name, "none", value);
        }
    }
    check(differences.empty(), ErrorKind::bad_argument, file.string(),
          ": the run was begun with other settings (", differences,
          "); resume with the same ones, or begin a new run");
}

fs::path adapter_file(const fs::path& folder, const std::string& name, int64_t step) {
    return folder / name_of(name, step, ".safetensors");
}

fs::path state_file(const fs::path& folder, const std::string& name, int64_t step) {
    return folder / name_of(name, step, ".state");
}

std::vector<int64_t> stored_steps(const fs::path& folder, const std::string& name) {
    std::vector<int64_t> steps;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const std::string found = entry.path().filename().string();
        const std::string prefix = name + "-step";
        if (found.starts_with(prefix) && entry.path().extension() == ".state") {
            const std::string digits = entry.path().stem().string().substr(prefix.size());
            if (digits.size() == kStepDigits &&
                digits.find_first_not_of("0123456789") == std::string::npos) {
                steps.push_back(std::stoll(digits));
            }
        }
    }
    std::sort(steps.begin(), steps.end());
    return steps;
}

}  // namespace flux2
