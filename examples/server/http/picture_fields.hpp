// The fields that requests of several dialects share: what is drawn, and how.
#pragma once

#include <flux2/flux2.hpp>
#include "http/request_fields.hpp"
#include "http/service.hpp"

#include <string>

namespace flux2::server {

// prompt, negative_prompt, seed, steps, guidance, cfg_scale, lora
const FieldTable& prompt_fields();

// Fills a request from them. LoRAs are named by `lora` and by tags in the prompt; `lora` is a list
// of "name", "name:0.8" or {"name", "strength"}. Throws FieldError.
void read_prompt_fields(const RequestFields& fields, const Service& service, Request& request);

// "1024x768". Throws FieldError for anything else, and for sizes that pictures cannot have.
void read_size(const std::string& field, const std::string& text, Request& request);
// Throws FieldError for a side that is not a multiple of 16 or out of range.
void check_side(const std::string& field, int side);

// How pictures are sent.
struct PictureFormat {
    ImageFormat format = ImageFormat::png;
    std::string word = "png";  // of output_format
    std::string mime = "image/png";
    ImageCompression compression = {};
};
// `quality` is 0 to 100, for JPEG and WebP. Throws FieldError for an unknown word, and for WebP
// when this build has none.
PictureFormat picture_format(const std::string& word, int quality = ImageCompression().quality);

// The file of a finished picture in this format; a PNG is the one in the store. Throws StatusError
// 410 when it has left the store.
std::string picture_bytes(Service& service, const Picture& picture, const PictureFormat& format);

// The file of an unfinished picture.
std::string picture_bytes(const Image& image, const PictureFormat& format);

}  // namespace flux2::server
