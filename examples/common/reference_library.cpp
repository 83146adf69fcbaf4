#include "common/reference_library.hpp"

#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/letter_case.hpp"
#include "common/closest_names.hpp"
#include "formats/json_file.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::array kFields = {"sentence", "role", "trigger", "description"};

bool is_name_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

bool is_name(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), is_name_letter);
}

bool is_picture_name(const fs::path& file) {
    const std::string extension = to_lower(file.extension().string());
    return extension == ".png" || extension == ".jpg" || extension == ".jpeg" ||
           extension == ".webp";
}

// "red_robot" -> "red robot"
std::string in_words(std::string name) {
    std::replace(name.begin(), name.end(), '_', ' ');
    std::replace(name.begin(), name.end(), '-', ' ');
    return name;
}

void check_fields(const json& facts, const fs::path& file) {
    for (const auto& [key, value] : facts.items()) {
        check(std::find(kFields.begin(), kFields.end(), key) != kFields.end(), ErrorKind::bad_file,
              file.string(), ": '", key,
              "' is no field of an element; use sentence, role, trigger and description");
    }
}

// A list of words as one text.
std::string trigger_words(const json& facts, const fs::path& file) {
    const json words = get_json<json>(facts, "trigger", file).value_or(json::array());
    std::string text;
    check(words.is_array(), ErrorKind::bad_file, file.string(),
          ": its trigger is no list; use [\"word\", \"word\"]");
    for (const json& word : words) {
        check(word.is_string() && !word.get<std::string>().empty(), ErrorKind::bad_file,
              file.string(), ": its trigger holds ", word.dump(),
              ", which is no word; use [\"word\", \"word\"]");
        text += (text.empty() ? "" : ", ") + word.get<std::string>();
    }
    return text;
}

// The sentence or the role that a description gives; nothing when it has neither.
std::optional<std::string> given_role(const json& facts, const fs::path& file) {
    const auto sentence = get_json<std::string>(facts, "sentence", file);
    const auto role = get_json<std::string>(facts, "role", file);
    check(!sentence || !role, ErrorKind::bad_file, file.string(),
          ": has both a sentence and a role; leave out one of them");
    check(!sentence || sentence->find("{}") != std::string::npos, ErrorKind::bad_file,
          file.string(), ": its sentence has no {} in place of the picture's number");
    check(!role || is_role(*role), ErrorKind::bad_file, file.string(), ": its role '",
          role.value_or(""), "' is unknown; roles are ", role_words());
    return sentence ? sentence : role;
}

// Expands one prompt.
class Expansion {
  public:
    explicit Expansion(const ReferenceLibrary& library) : library_(library) {}

    std::string expand(const std::string& text);
    std::vector<ReferenceFile> references() && { return std::move(references_); }

  private:
    std::string use(const std::string& name);

    const ReferenceLibrary& library_;
    std::vector<ReferenceFile> references_;
    std::map<std::string, std::string> used_;  // texts by name
    std::vector<std::string> chain_;           // elements whose sentences are being expanded
};

std::string Expansion::expand(const std::string& text) {
    std::string expanded;
    for (auto at = text.begin(); at != text.end();) {
        const auto sign = std::find(at, text.end(), '@');
        expanded.append(at, sign);
        if (sign == text.end()) {
            break;
        }
        const bool in_word = sign != text.begin() && (is_name_letter(sign[-1]) || sign[-1] == '.');
        at = std::find_if_not(sign + 1, text.end(), is_name_letter);
        const std::string name(sign + 1, at);
        expanded += in_word || name.empty() ? "@" + name : use(name);
    }
    return expanded;
}

// Adds the element to the references, unless it is there. Returns its text.
std::string Expansion::use(const std::string& name) {
    const auto again = std::find(chain_.begin(), chain_.end(), name);
    if (again != chain_.end()) {
        std::string circle;
        std::for_each(again, chain_.end(),
                      [&](const std::string& element) { circle += "@" + element + " -> "; });
        fail(ErrorKind::bad_argument,
             "elements of the reference library mention each other: ", circle, "@", name,
             "; take one of them out of a sentence");
    }
    if (const auto found = used_.find(name); found != used_.end()) {
        return found->second;
    }
    const LibraryElement element = library_.find(name);
    check(references_.size() < kMaxReferences, ErrorKind::bad_argument,
          "the prompt names more than ", kMaxReferences,
          " elements of the reference library, and a picture takes at most ", kMaxReferences,
          " references; name fewer");
    const size_t index = references_.size();
    references_.push_back({.file = element.picture, .role = ""});
    chain_.push_back(name);
    references_[index].role = expand(element.role);
    chain_.pop_back();
    return used_[name] = element.text;
}

}  // namespace

ReferenceLibrary::ReferenceLibrary(fs::path folder) : folder_(std::move(folder)) {
    std::set<std::string> described;
    std::error_code error;
    fs::directory_iterator entry(folder_, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        const fs::path& file = entry->path();
        const std::string name = file.stem().string();
        if (is_picture_name(file) && is_name(name)) {
            pictures_[name].push_back(file);
        } else if (is_picture_name(file)) {
            strays_.push_back(file.string() +
                              ": a prompt cannot name it; rename it with letters, digits, - and _");
        } else if (file.extension() == ".json") {
            described.insert(name);
        }
    }
    check(!error, ErrorKind::bad_file, folder_.string(),
          ": cannot be searched for references: ", error.message());
    for (const std::string& name : described) {
        if (!pictures_.contains(name)) {
            strays_.push_back(concat((folder_ / (name + ".json")).string(),
                                     ": describes no picture; add ", name, ".png or ", name,
                                     ".jpg"));
        }
    }
    std::sort(strays_.begin(), strays_.end());
    for (auto& [name, files] : pictures_) {
        std::sort(files.begin(), files.end());
    }
}

std::string LibraryElement::sentence() const {
    for (const ReferenceRole& known : reference_roles()) {
        if (known.word == role) {
            return known.sentence;
        }
    }
    return role;
}

std::vector<std::string> ReferenceLibrary::names() const {
    std::vector<std::string> names;
    for (const auto& [name, files] : pictures_) {
        names.push_back(name);
    }
    return names;
}

LibraryElement ReferenceLibrary::find(const std::string& name) const {
    const auto found = pictures_.find(name);
    if (found == pictures_.end()) {
        fail(ErrorKind::bad_argument, "there is no @", name, " in the reference library ",
             folder_.string(),
             pictures_.empty() ? ", which holds no PNG, JPEG or WebP"
                               : closest_names(name, names()));
    }
    const std::vector<fs::path>& files = found->second;
    check(files.size() == 1, ErrorKind::bad_file, "@", name, " may be ", files.front().string(),
          " or ", files.back().string(), "; rename one of them");
    const fs::path file = folder_ / (name + ".json");
    const json facts = read_json_if_present(file).value_or(json::object());
    check_fields(facts, file);
    LibraryElement element;
    element.picture = files.front();
    element.trigger = trigger_words(facts, file);
    element.description = get_json<std::string>(facts, "description", file).value_or("");
    element.text = element.trigger.empty() ? in_words(name) : element.trigger;
    element.role =
        given_role(facts, file).value_or(concat("Show ", element.text, " as in image {}."));
    return element;
}

ExpandedPrompt expand_elements(const std::string& prompt, const ReferenceLibrary& library) {
    Expansion expansion(library);
    ExpandedPrompt expanded;
    expanded.text = expansion.expand(prompt);
    expanded.references = std::move(expansion).references();
    return expanded;
}

}  // namespace flux2::cli
