#include "networks/family.hpp"

#include <algorithm>

namespace flux2 {
namespace {

template <typename Predicate>
const Family* find(const Predicate& fits) {
    const auto* found = std::find_if(kFamilies.begin(), kFamilies.end(), fits);
    return found == kFamilies.end() ? nullptr : found;
}

}  // namespace

const Family* find_family(int64_t text_width) {
    return find([&](const Family& family) { return family.text_width == text_width; });
}

const Family* find_family(TextFamily text_family, int64_t text_hidden) {
    return find([&](const Family& family) {
        return family.text_family == text_family && family.text_hidden == text_hidden;
    });
}

const Family& nearest_family(TextFamily text_family, int64_t text_hidden) {
    const Family* nearest = nullptr;
    for (const Family& family : kFamilies) {
        if (family.text_family == text_family &&
            (nearest == nullptr || nearest->text_hidden < text_hidden)) {
            nearest = &family;
        }
    }
    return *nearest;
}

std::string families_in_words() {
    std::string text;
    for (const Family& family : kFamilies) {
        text += text.empty() ? "" : ", ";
        text += family.transformer;
        text += &family == kFamilies.data() ? " goes with " : " with ";
        text += family.text_encoder;
    }
    return text;
}

}  // namespace flux2
