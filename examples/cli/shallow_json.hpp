// JSON from files that anybody may have written.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace flux2::cli {

// What the text says; discarded (is_discarded) when it is broken, or nested so deeply that copying
// it, which goes down recursively, would overflow the stack.
inline nlohmann::json parse_shallow_json(const std::string& text) {
    constexpr int kMaxDepth = 16;
    bool too_deep = false;
    const auto keep = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
    };
    nlohmann::json parsed = nlohmann::json::parse(text, keep, /*allow_exceptions=*/false);
    return too_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : parsed;
}

}  // namespace flux2::cli
