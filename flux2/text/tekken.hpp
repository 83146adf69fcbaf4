// Mistral's own tokenizer format, tekken.json, which ComfyUI embeds in its text encoder file.
#pragma once

#include "text/vocabulary.hpp"

#include <string>
#include <string_view>

namespace flux2 {

// Special tokens come first, then the ordinary ones by rank. Merges, which such a file does not
// list, are made as Hugging Face's converter makes them. Throws bad_file when it is broken.
Vocabulary read_tekken_json(std::string_view json_text, const std::string& file);

}  // namespace flux2
