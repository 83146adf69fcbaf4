// What model files are, and which of them belong together.
#pragma once

#include <flux2/flux2.hpp>
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/variant.hpp"

#include <optional>

namespace flux2 {

// What an opened part is; the option overrides what a transformer says of its variant. Throws
// bad_file for a part that lacks tensors or says things that make no sense, bad_argument for an
// option that its tensors contradict.
FileInfo describe(const Checkpoint& checkpoint, std::optional<Variant> option = std::nullopt);

bool is(const FileInfo& info, Part part);

}  // namespace flux2
