// GGUF, reading: header, typed key-value pairs, tensor directory (format: ggml's gguf.h). Our own
// reader, since ggml's does not report reasons and allocates sizes that a file claims.
#pragma once

#include "formats/tensor_directory.hpp"

#include <span>
#include <string>

namespace flux2 {

// Whether the bytes start as a GGUF file does.
bool is_gguf(std::span<const std::byte> bytes);

// Reads and checks everything but the data of a file mapped at `bytes`; `file` names it in errors.
// Throws bad_file before anything of a claimed size is allocated.
TensorDirectory parse_gguf(const std::string& file, std::span<const std::byte> bytes);

}  // namespace flux2
