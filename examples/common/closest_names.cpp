#include "common/closest_names.hpp"

#include "base/letter_case.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace flux2::cli {
namespace {

constexpr size_t kMaxNamesTold = 8;

// How many letters to insert, remove or replace to make one text of the other.
size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<size_t> row(b.size() + 1);  // from the first i letters of a
    for (size_t j = 0; j <= b.size(); ++j) {
        row[j] = j;
    }
    for (size_t i = 0; i < a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b.size(); ++j) {
            const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

}  // namespace

std::string closest_names(const std::string& name, const std::vector<std::string>& known) {
    std::vector<std::pair<size_t, std::string>> names;
    for (const std::string& other : known) {
        names.emplace_back(edit_distance(to_lower(name), to_lower(other)), other);
    }
    std::sort(names.begin(), names.end());
    std::string text = names.size() > kMaxNamesTold ? "; the closest are " : "; it has ";
    for (size_t i = 0; i < std::min(names.size(), kMaxNamesTold); ++i) {
        text += (i == 0 ? "" : ", ") + names[i].second;
    }
    return text;
}

}  // namespace flux2::cli
