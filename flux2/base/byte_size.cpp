#include "base/byte_size.hpp"

#include "base/check.hpp"
#include "base/parse_number.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace flux2 {

uint64_t parse_bytes(const std::string& name, const std::string& text, const char* what) {
    const size_t n_digits = std::min(text.find_first_not_of("0123456789."), text.size());
    std::string_view unit = std::string_view(text).substr(n_digits);
    if (unit.ends_with('B') || unit.ends_with('b')) {
        unit.remove_suffix(1);
    }
    double factor = unit.empty() ? 1 : 0;
    for (const auto& [letters, size] : {std::pair{"kK", 1e3}, {"mM", 1e6}, {"gG", 1e9}}) {
        if (unit.size() == 1 && std::string_view(letters).find(unit) != std::string_view::npos) {
            factor = size;
        }
    }
    const double bytes = double_in(text.substr(0, n_digits)).value_or(0) * factor;
    constexpr double kMost = 1e15;
    check(bytes >= 1 && bytes <= kMost, ErrorKind::bad_argument, name, ": '", text, "' is no ",
          what, "; use a number and a unit, such as 4G or 3500M");
    return static_cast<uint64_t>(bytes);
}

std::string gigabytes(uint64_t bytes) {
    return concat(static_cast<double>(bytes / 10'000'000) / 100.0, " GB");
}

}  // namespace flux2
