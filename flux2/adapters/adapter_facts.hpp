// What the metadata of an adapter file tell its user.
#pragma once

#include "formats/metadata.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {

// What is worth showing, in order, each a single line: {"trigger words", "blueprint"}. Values that
// are not what they should be are left out.
std::vector<std::pair<std::string, std::string>> adapter_facts(const Metadata& metadata);

// Whether it was trained on a base model; unset when the metadata do not name the model exactly.
std::optional<bool> trained_on_base(const Metadata& metadata);

}  // namespace flux2
