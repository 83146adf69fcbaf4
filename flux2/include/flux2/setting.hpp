// What a caller can set, where messages of the library name it. They do so by the field or the
// parameter in backquotes ("use a smaller `type`"), since only a program knows its own words: an
// option, a field of JSON.
#pragma once

#include <flux2/export.h>

#include <functional>
#include <string>

namespace flux2 {

enum class Setting {
    // Of ModelFiles.
    transformer,
    text_encoder,
    vae,
    taesd,
    // Of find_model().
    folder,
    // Of LoadOptions.
    device,
    type,
    variant,
    cache_folder,
    // Of Request.
    fit_size,
    // Of load_image().
    alpha,
    // Of flux2-convert: what it puts into the GGUF file of a text encoder.
    tokenizer,
};

// As the field or the parameter is called: "text_encoder".
FLUX2_API const char* to_string(Setting setting);

// What a program calls a setting.
using SettingWording = std::function<std::string(Setting)>;

// A text of the library (the message of an Error, a line of the log, what FileInfo says) with its
// settings in the program's words.
FLUX2_API std::string worded(const std::string& text, const SettingWording& wording);

}  // namespace flux2
