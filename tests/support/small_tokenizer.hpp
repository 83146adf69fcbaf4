// A tokenizer.json of two tokens that splits text as Qwen's does.
#pragma once

#include "base/split_patterns.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace flux2::test {

inline std::string small_tokenizer_json() {
    const nlohmann::json split = {{"pattern", {{"Regex", std::string(kQwenSplit)}}}};
    nlohmann::json model = {{"type", "BPE"}, {"merges", nlohmann::json::array()}};
    model["vocab"] = {{"a", 0}, {"b", 1}};
    return nlohmann::json({{"model", model}, {"pre_tokenizer", split}}).dump();
}

}  // namespace flux2::test
