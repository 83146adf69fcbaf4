#include "adapters/block_strengths.hpp"

#include "base/check.hpp"
#include "base/parse_number.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

namespace flux2 {
namespace {

constexpr const char* kExample = "double=0.5,single.0-9=0,double.3=1.2";

[[noreturn]] void refuse(std::string_view entry) {
    fail(ErrorKind::bad_argument, "'", entry, "' is no strength of blocks; write them as in ",
         kExample);
}

std::optional<int64_t> parse_block(std::string_view text) {
    int64_t block = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, block);
    const bool whole = error == std::errc() && rest == end && block >= 0;
    return whole ? std::optional(block) : std::nullopt;
}

// The part of the text before the separator; all of it when there is none.
std::string_view before(std::string_view text, char separator) {
    return text.substr(0, text.find(separator));
}

std::string_view after(std::string_view text, char separator) {
    const size_t at = text.find(separator);
    return at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
}

}  // namespace

BlockStrengths::Entry BlockStrengths::parse_entry(const std::string& entry) {
    const std::string_view blocks = before(entry, '=');
    const std::string_view kind = before(blocks, '.');
    if ((kind != "double" && kind != "single") || blocks.size() == entry.size()) {
        refuse(entry);
    }
    const float strength =
        parse_float(concat("the strength of blocks '", entry, "' (as in ", kExample, ")"),
                    std::string(after(entry, '=')));
    const std::string prefix = std::string(kind) + "_blocks.";
    if (kind == blocks) {
        return {prefix, 0, std::numeric_limits<int64_t>::max(), strength};
    }
    const std::string_view range = after(blocks, '.');
    const bool single = range.find('-') == std::string_view::npos;
    const auto first = parse_block(before(range, '-'));
    const auto last = single ? first : parse_block(after(range, '-'));
    if (!first || !last || *last < *first) {
        refuse(entry);
    }
    return {prefix, *first, *last, strength};
}

BlockStrengths::BlockStrengths(const std::string& text) {
    for (size_t begin = 0; !text.empty() && begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        entries_.push_back(parse_entry(text.substr(begin, end - begin)));
        begin = end + 1;
    }
}

float BlockStrengths::of(const std::string& tensor) const {
    float strength = 1;
    for (const Entry& entry : entries_) {
        if (!tensor.starts_with(entry.prefix)) {
            continue;
        }
        const auto block =
            parse_block(before(std::string_view(tensor).substr(entry.prefix.size()), '.'));
        if (block && *block >= entry.first && *block <= entry.last) {
            strength = entry.strength;
        }
    }
    return strength;
}

}  // namespace flux2
