// Settings that messages of the library refer to. The library names a setting by its field or
// parameter in backquotes ("use a smaller `type`"); a program can replace that by its own name for
// it, such as an option or a JSON field.
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
    split,
    // Of Request.
    fit_size,
    reference_pixels,
    init,
    inpaint_area,
    adapters,
    cfg_scale,
    // Of load_image().
    alpha,
    // Of flux2-convert: what it puts into the GGUF file of a text encoder.
    tokenizer,
    // Of Inpaint.
    mask_invert,
};

// The name of the field or parameter: "text_encoder".
FLUX2_API const char* to_string(Setting setting);

// Returns a program's name for a setting.
using SettingWording = std::function<std::string(Setting)>;

// A text of the library (the message of an Error, a line of the log, what FileInfo says) with
// settings replaced by the program's names for them.
FLUX2_API std::string worded(const std::string& text, const SettingWording& wording);

}  // namespace flux2
