// Descriptions of model files.
#pragma once

#include <flux2/flux2.hpp>
#include "checkpoints/checkpoint.hpp"
#include "checkpoints/variant.hpp"

#include <optional>

namespace flux2 {

// Describes an opened part; the option overrides the variant in a transformer's file. Throws
// bad_file for missing tensors or invalid metadata, bad_argument for an option that contradicts the
// tensors.
FileInfo describe(const Checkpoint& checkpoint, std::optional<Variant> option = std::nullopt);

bool is(const FileInfo& info, Part part);

}  // namespace flux2
