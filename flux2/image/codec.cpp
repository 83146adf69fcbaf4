#include "image/codec.hpp"

#include "base/check.hpp"

// The implementation is local to this file, so that programs can link their own stb.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb_image.h>
#include <stb_image_write.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kMaxInflation = 1032;  // bytes that deflate can make of one

void append(void* context, void* data, int size) {
    auto& out = *static_cast<std::vector<std::byte>*>(context);
    const auto* first = static_cast<const std::byte*>(data);
    out.insert(out.end(), first, first + size);
}

// By one of stb's functions; n_channels are those to make of a pixel, or 0 for those of the file.
template <typename Result, typename Load>
Result decoded(const Load& load, Bytes bytes, const std::string& file, int n_channels) {
    check(bytes.size() <= INT_MAX, ErrorKind::bad_file, file, ": is ", bytes.size(),
          " bytes long, at most ", INT_MAX, " are read");
    int width = 0;
    int height = 0;
    int n_in_file = 0;
    auto* values = load(reinterpret_cast<const stbi_uc*>(bytes.data()),
                        static_cast<int>(bytes.size()), &width, &height, &n_in_file, n_channels);
    check(values != nullptr, ErrorKind::bad_file, file,
          ": the picture is broken: ", stbi_failure_reason());
    return {width, height, n_in_file, {values, stbi_image_free}};
}

}  // namespace

Pixels decode_pixels(Bytes bytes, const std::string& file) {
    return decoded<Pixels>(stbi_load_from_memory, bytes, file, 0);
}

Pixels decode_first_plane(Bytes bytes, const std::string& file) {
    Pixels plane = decoded<Pixels>(stbi_load_from_memory, bytes, file, 1);
    plane.n_channels = 1;
    return plane;
}

Pixels16 decode_pixels_16(Bytes bytes, const std::string& file) {
    return decoded<Pixels16>(stbi_load_16_from_memory, bytes, file, 0);
}

std::vector<std::byte> encode_pixels(ImageFormat format, const Image& image, int quality) {
    const int width = image.width;
    const int height = image.height;
    const uint8_t* rgb = image.rgb.data();
    std::vector<std::byte> out;
    int ok = 0;
    switch (format) {
        case ImageFormat::png:
            ok = stbi_write_png_to_func(append, &out, width, height, 3, rgb, 3 * width);
            break;
        case ImageFormat::jpeg:
            // stb takes 0 for its own default.
            ok = stbi_write_jpg_to_func(append, &out, width, height, 3, rgb, std::max(quality, 1));
            break;
        case ImageFormat::bmp:
            ok = stbi_write_bmp_to_func(append, &out, width, height, 3, rgb);
            break;
        case ImageFormat::webp:
            fail(ErrorKind::internal, "stb writes no WebP");
    }
    check(ok != 0, ErrorKind::out_of_memory, "no memory to encode a picture of ", width, "x",
          height, " pixels");
    return out;
}

std::optional<std::string> inflate(Bytes bytes, size_t max_size) {
    const bool may_be_full = bytes.size() >= max_size / kMaxInflation;
    std::string out(may_be_full ? max_size : bytes.size() * kMaxInflation, '\0');
    const int size = stbi_zlib_decode_buffer(out.data(), static_cast<int>(out.size()),
                                             reinterpret_cast<const char*>(bytes.data()),
                                             static_cast<int>(bytes.size()));
    if (size < 0) {
        return std::nullopt;
    }
    out.resize(static_cast<size_t>(size));
    return out;
}

std::string deflate(Bytes bytes) {
    constexpr int kQuality = 8;  // stb's own for pixels
    std::string copy(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    int size = 0;
    const std::unique_ptr<unsigned char, void (*)(void*)> out(
        stbi_zlib_compress(reinterpret_cast<unsigned char*>(copy.data()),
                           static_cast<int>(copy.size()), &size, kQuality),
        free);
    check(out != nullptr, ErrorKind::out_of_memory, "no memory to compress ", bytes.size(),
          " bytes");
    return {reinterpret_cast<const char*>(out.get()), static_cast<size_t>(size)};
}

}  // namespace flux2
