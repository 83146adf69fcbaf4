// WebP: compressed bytes to pixels and back, by libwebp. In a build without it both functions throw
// unsupported; supports_webp() of flux2/image.hpp says which build it is.
#pragma once

#include <flux2/image.hpp>
#include "image/codec.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// What is wrong and what to do, after the name of a file.
constexpr std::string_view kNoWebp =
    "this build of flux2 has no WebP; use PNG or JPEG, or build flux2 with libwebp installed "
    "(Debian: libwebp-dev, Homebrew: webp)";

// Of a file that has passed check_webp: RGB, or RGB and alpha. Throws bad_file when it is broken
// and out_of_memory; `file` names it.
Pixels decode_webp(std::span<const std::byte> bytes, const std::string& file);

// A whole file, without texts. Throws bad_argument for a side over 16383 pixels, out_of_memory, and
// unsupported when libwebp cannot encode the picture otherwise.
std::vector<std::byte> encode_webp(const Image& image, const ImageCompression& compression);

}  // namespace flux2
