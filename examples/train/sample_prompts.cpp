#include "train/sample_prompts.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/parse_number.hpp"
#include "base/utf8.hpp"
#include "common/options.hpp"

#include <sstream>

namespace flux2::cli {
namespace {

std::string trimmed(const std::string& text) {
    const size_t begin = text.find_first_not_of(" \t\r");
    return begin == std::string::npos
               ? ""
               : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

void set_option(const std::string& name, const std::string& value, Request& request) {
    if (name == "w") {
        request.width = parse_int("--w", value);
    } else if (name == "h") {
        request.height = parse_int("--h", value);
    } else if (name == "s") {
        request.steps = parse_int("--s", value);
    } else if (name == "d") {
        request.seed = parse_seed(value);
    } else if (name == "g") {
        request.guidance = parse_float("--g", value);
    } else if (name == "n") {
        request.negative_prompt = value;
    } else if (name == "ci") {
        request.references.push_back(load_image(value));
    } else {
        fail(ErrorKind::bad_file, "the option --", name,
             " is unknown; a line takes --w, --h, --s, --d, --g, --n and --ci");
    }
}

// Options begin with " --" and a letter.
Request parse_line(const std::string& line) {
    Request request;
    request.seed = 0;
    request.fit_size = true;
    size_t end = std::min(line.find(" --"), line.size());
    request.prompt = trimmed(line.substr(0, end));
    while (end < line.size()) {
        const size_t begin = end + 3;
        end = std::min(line.find(" --", begin), line.size());
        const std::string option = line.substr(begin, end - begin);
        const size_t space = std::min(option.find(' '), option.size());
        set_option(option.substr(0, space), trimmed(option.substr(space)), request);
    }
    return request;
}

}  // namespace

std::vector<Request> read_sample_prompts(const std::filesystem::path& file, Problems& problems) {
    constexpr size_t kMostBytes = 1 << 20;
    std::vector<Request> requests;
    std::string text;
    try {
        text = decode_text_file(read_text_file(file, kMostBytes), file.string());
    } catch (const Error& error) {
        problems.add(error.what());
        return requests;
    }
    std::istringstream lines(text);
    std::string line;
    for (size_t number = 1; std::getline(lines, line); ++number) {
        line = trimmed(line);
        if (line.empty() || line.front() == '#') {
            continue;
        }
        try {
            requests.push_back(parse_line(line));
        } catch (const Error& error) {
            problems.add(concat(file.string(), ":", number, ": ", error.what()));
        }
    }
    if (requests.empty() && problems.empty()) {
        problems.add(concat(file.string(), ": there is no prompt in it"));
    }
    return requests;
}

}  // namespace flux2::cli
