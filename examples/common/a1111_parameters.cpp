#include "common/a1111_parameters.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"
#include "common/setting_line.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>
#include <string_view>

namespace flux2::cli {
namespace {

constexpr std::string_view kNegative = "Negative prompt:";

struct Pair {
    std::string key, value;
};

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        lines.push_back(trimmed(line));
    }
    return lines;
}

// ---- The line of settings ----

// Where a value that begins at `at` ends: at a comma outside quotes and brackets, or, when they are
// not closed, at the next one.
size_t end_of_value(const std::string& line, size_t at) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = at; i < line.size(); ++i) {
        const char c = line[i];
        if (quoted) {
            i += c == '\\' ? 1 : 0;
            quoted = c != '"';
        } else if (c == '"' && (depth > 0 || i == at)) {
            quoted = true;
        } else if (c == '{' || c == '[') {
            ++depth;
        } else if (c == '}' || c == ']') {
            --depth;
        } else if (c == ',' && depth <= 0) {
            return i;
        }
    }
    const bool closed = !quoted && depth <= 0;
    return closed ? line.size() : std::min(line.find(',', at), line.size());
}

// Without quotes, and what a backslash stands before as it is.
std::string unquoted(const std::string& value) {
    if (value.size() < 2 || !value.starts_with('"') || !value.ends_with('"')) {
        return value;
    }
    std::string text;
    for (size_t i = 1; i + 1 < value.size(); ++i) {
        const bool escaped = value[i] == '\\' && i + 2 < value.size();
        i += escaped ? 1 : 0;
        text += escaped && value[i] == 'n' ? '\n' : value[i];
    }
    return text;
}

// "Steps: 4, Size: 64x64" -> its pairs. What has no key gets an empty one.
std::vector<Pair> pairs_of(const std::string& line) {
    std::vector<Pair> pairs;
    for (size_t at = 0; at < line.size();) {
        const size_t comma = std::min(line.find(',', at), line.size());
        const size_t colon = line.find(':', at);
        const bool has_key = colon < comma;
        const size_t begin = has_key ? line.find_first_not_of(" \t", colon + 1) : at;
        const size_t end = has_key ? end_of_value(line, std::min(begin, line.size())) : comma;
        const Pair pair{has_key ? trimmed(line.substr(at, colon - at)) : "",
                        begin < end ? unquoted(trimmed(line.substr(begin, end - begin))) : ""};
        if (!pair.key.empty() || !pair.value.empty()) {
            pairs.push_back(pair);
        }
        at = end + 1;
    }
    return pairs;
}

// The last line that begins as such lines do; else the last one, if it has several settings.
std::optional<size_t> find_settings(const std::vector<std::string>& lines) {
    for (size_t i = lines.size(); i-- > 0;) {
        if (lines[i].starts_with("Steps: ")) {
            return i;
        }
    }
    if (lines.empty()) {
        return std::nullopt;
    }
    constexpr std::ptrdiff_t kEnough = 3;
    const std::vector<Pair> pairs = pairs_of(lines.back());
    const auto n_keys = std::count_if(pairs.begin(), pairs.end(),
                                      [](const Pair& pair) { return !pair.key.empty(); });
    return n_keys >= kEnough ? std::optional(lines.size() - 1) : std::nullopt;
}

// ---- Its values ----

template <typename T>
bool take_whole(const std::string& text, std::optional<T>& target) {
    T value = 0;
    const char* end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || next != end || text.starts_with('-')) {
        return false;
    }
    target = value;
    return true;
}

bool take_real(const std::string& text, std::optional<float>& target) {
    const std::optional<double> value = double_in(text);
    if (value) {
        target = static_cast<float>(*value);
    }
    return value.has_value();
}

// "512x768"
bool take_size(const std::string& text, A1111Parameters& p) {
    const size_t x = std::min(text.find('x'), text.size());
    std::optional<int> width, height;
    if (x == text.size() || !take_whole(text.substr(0, x), width) ||
        !take_whole(text.substr(x + 1), height)) {
        return false;
    }
    p.width = width;
    p.height = height;
    return true;
}

// Facts that change nothing: about the files, which the user names, or what we do as well.
bool is_without_effect(const std::string& key, const std::string& value) {
    constexpr std::array kFacts = {
        "version", "lora hashes", "ti hashes",         "hashes",           "model hash",
        "vae",     "vae hash",    "vae encoder",       "vae decoder",      "te",
        "llm",     "unet",        "civitai resources", "civitai metadata", "created date"};
    const std::string lower = to_lower(value);
    return std::find(kFacts.begin(), kFacts.end(), key) != kFacts.end() ||
           key.starts_with("module ") || (key == "sampler" && lower == "euler") ||
           (key == "rng" && (lower == "cuda" || lower == "gpu" || lower == "nv")) ||
           (key == "eta" && value.find_first_not_of("0.") == std::string::npos);
}

// Whether the setting is understood.
bool take(const Pair& pair, A1111Parameters& p) {
    const std::string key = to_lower(pair.key);
    const std::string& value = pair.value;
    if (key == "model") {
        p.model = value;
        return true;
    }
    return (key == "steps" && take_whole(value, p.steps)) ||
           (key == "seed" && take_whole(value, p.seed)) || (key == "size" && take_size(value, p)) ||
           (key == "cfg scale" && take_real(value, p.cfg_scale)) ||
           ((key == "distilled cfg scale" || key == "guidance") && take_real(value, p.guidance)) ||
           (key == "denoising strength" && take_real(value, p.strength)) ||
           is_without_effect(key, value);
}

void append_line(std::string& text, const std::string& line) {
    text += (text.empty() ? "" : "\n") + line;
}

}  // namespace

std::optional<A1111Parameters> parse_a1111(const std::string& text) {
    const std::vector<std::string> lines = lines_of(text);
    const auto settings = find_settings(lines);
    if (!settings) {
        return std::nullopt;
    }
    A1111Parameters p;
    bool negative = false;
    for (size_t i = 0; i < *settings; ++i) {
        const bool begins = lines[i].starts_with(kNegative);
        negative = negative || begins;
        append_line(negative ? p.negative_prompt : p.prompt,
                    begins ? trimmed(lines[i].substr(kNegative.size())) : lines[i]);
    }
    for (const Pair& pair : pairs_of(lines[*settings])) {
        if (!take(pair, p)) {
            p.unused.push_back(pair.key.empty() ? pair.value : concat(pair.key, ": ", pair.value));
        }
    }
    for (size_t i = *settings + 1; i < lines.size(); ++i) {
        if (!lines[i].empty()) {
            p.unused.push_back(lines[i]);
        }
    }
    return p;
}

GenerateOptions options_from_parameters(const A1111Parameters& p) {
    GenerateOptions o;
    o.prompt = p.prompt;
    o.stored_model = p.model;
    o.not_repeated = p.unused;
    Request& r = o.request;
    r.negative_prompt = p.negative_prompt;
    r.steps = p.steps;
    r.width = p.width;
    r.height = p.height;
    r.seed = p.seed;
    // Some programs name an embedded guidance for every model. With two passes it may contradict
    // their scale on a base model, so it is left out.
    const bool two_passes = p.cfg_scale.value_or(1.0f) > 1.0f;
    if (p.guidance && !two_passes) {
        r.guidance = p.guidance;
    } else {
        r.cfg_scale = p.cfg_scale;
    }
    if (p.guidance && two_passes) {
        o.not_repeated.push_back(concat("Guidance: ", *p.guidance));
    }
    if (p.strength) {
        o.strength = *p.strength;
        o.not_repeated.push_back(concat("Denoising strength: ", *p.strength, " (without -i FILE)"));
    }
    return o;
}

}  // namespace flux2::cli
