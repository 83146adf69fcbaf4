#include "pipeline/reference_roles.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"

#include <algorithm>

namespace flux2 {

const std::vector<ReferenceRole>& reference_roles() {
    static const std::vector<ReferenceRole> kRoles = {
        {"style", "Apply the style from image {}."},
        {"pose", "Match the pose in image {}."},
        {"depth", "Match the depth map in image {}."},
        {"subject", "Show the subject of image {}."},
        {"face", "Keep the face of the person in image {}."},
        {"composition", "Follow the composition of image {}."},
        {"background", "Use the background of image {}."},
        {"colours", "Use the colours of image {}."},
        {"outlines", "Follow the outlines in image {}."},
    };
    return kRoles;
}

namespace {

constexpr const char* kPlaceholder = "{}";

std::string role_words() {
    std::string words;
    for (const ReferenceRole& role : reference_roles()) {
        words += concat(words.empty() ? "" : ", ", role.word);
    }
    return words;
}

// `index` counts the request's references from 0.
std::string sentence_of(const std::string& role, size_t index) {
    if (role.find(kPlaceholder) != std::string::npos) {
        return role;
    }
    const auto found = std::find_if(reference_roles().begin(), reference_roles().end(),
                                    [&](const ReferenceRole& known) { return known.word == role; });
    check(found != reference_roles().end(), ErrorKind::bad_argument, "reference ", index + 1,
          ": there is no role '", role, "'; use ", role_words(), ", or a sentence with ",
          kPlaceholder, " in place of the picture's number");
    return found->sentence;
}

std::string numbered(std::string sentence, size_t number) {
    const std::string digits = std::to_string(number);
    for (size_t at = 0; (at = sentence.find(kPlaceholder, at)) != std::string::npos;) {
        sentence.replace(at, std::string(kPlaceholder).size(), digits);
        at += digits.size();
    }
    return sentence;
}

// What stands between a text and the sentence that follows it.
const char* separator_after(const std::string& text) {
    if (text.empty()) {
        return "";
    }
    const char last = to_lower(text.substr(text.size() - 1)).front();
    const bool is_open = (last >= 'a' && last <= 'z') || (last >= '0' && last <= '9');
    return is_open ? ". " : " ";
}

}  // namespace

std::string with_reference_sentences(const std::string& prompt, const Request& request) {
    const std::vector<std::string>& roles = request.reference_roles;
    const size_t n = request.references.size();
    check(roles.empty() || roles.size() == n, ErrorKind::bad_argument, roles.size(),
          " roles are given for ", n,
          " references; give one for each, which may be empty, or none at all");
    const size_t first_number = request.inpaint || request.outpaint ? 2 : 1;
    std::string full = prompt;
    for (size_t i = 0; i < roles.size(); ++i) {
        if (!roles[i].empty()) {
            full +=
                concat(separator_after(full), numbered(sentence_of(roles[i], i), first_number + i));
        }
    }
    return full;
}

}  // namespace flux2
