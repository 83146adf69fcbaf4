// Feeds arbitrary bytes to the readers of pictures, their texts, EXIF data and colour profiles: an
// Error is expected, anything else is a finding.
#include <flux2/error.hpp>
#include <flux2/image.hpp>
#include "image/colour_profile.hpp"
#include "image/embedded_profile.hpp"
#include "image/exif.hpp"
#include "image/jpeg_text.hpp"
#include "image/png_chunk.hpp"
#include "image/webp_chunk.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

using flux2::append_png_chunk;

template <typename Function>
void allow_errors(const Function& function) {
    try {
        function();
    } catch (const flux2::Error&) {
    }
}

// The smallest PNG around a chunk with this content. Its checksum is correct, which random bytes
// never are.
std::vector<std::byte> png_around(std::string_view type, std::string_view content) {
    constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
    constexpr std::string_view kOneGreyPixel("\0\0\0\1\0\0\0\1\x08\0\0\0\0", 13);
    const auto signature = std::as_bytes(std::span(kSignature));
    std::vector<std::byte> file(signature.begin(), signature.end());
    append_png_chunk(file, "IHDR", kOneGreyPixel);
    append_png_chunk(file, type, content);
    append_png_chunk(file, "IEND", {});
    return file;
}

// A few bytes of a lossless WebP can be a gigabyte of pixels of one colour, which takes too long
// here.
bool is_large_webp(std::span<const std::byte> bytes) {
    constexpr int kManyPixels = 1 << 22;
    bool large = false;
    allow_errors([&] {
        const std::string name = "fuzz";
        flux2::WebpChunks chunks(bytes, name);
        while (const auto chunk = chunks.next()) {
            const auto size = flux2::webp_picture_size(*chunk);
            large = large || (size && size->width * size->height > kManyPixels);
        }
    });
    return large;
}

void use_profile(std::span<const std::byte> profile) {
    const auto facts = flux2::examine_profile(profile);
    if (!facts) {
        return;
    }
    std::vector<uint8_t> pixels(3 * 4, 100);  // enough for three of CMYK
    std::vector<uint8_t> rgb(3 * 3);
    const auto layout = facts->space == flux2::ColourSpace::rgb    ? flux2::PixelLayout::rgb8
                        : facts->space == flux2::ColourSpace::grey ? flux2::PixelLayout::grey8
                                                                   : flux2::PixelLayout::cmyk8;
    flux2::convert_to_srgb(profile, layout, pixels.data(), rgb);
    if (facts->is_two_way) {
        flux2::convert_from_srgb(profile, rgb);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const auto bytes = std::as_bytes(std::span(data, size));
    if (flux2::is_webp(bytes) && is_large_webp(bytes)) {
        return 0;
    }
    allow_errors([&] { flux2::decode_image(bytes, "fuzz", flux2::Alpha::white); });
    allow_errors([&] { flux2::decode_image_texts(bytes, "fuzz"); });
    flux2::exif_orientation(bytes);
    flux2::exif_orientation(flux2::jpeg_exif(bytes));
    flux2::exif_user_comment(bytes);
    flux2::exif_user_comment(flux2::jpeg_exif(bytes));
    flux2::read_jpeg_texts(bytes);  // also of files that are no whole JPEGs
    use_profile(bytes);
    flux2::read_profile(flux2::ImageFormat::jpeg, bytes, "fuzz");
    const std::string_view content(reinterpret_cast<const char*>(data), size);
    flux2::read_profile(flux2::ImageFormat::png, png_around("iCCP", content), "fuzz");
    for (const std::string_view type : {"tEXt", "zTXt", "iTXt"}) {
        allow_errors([&] { flux2::decode_image_texts(png_around(type, content), "fuzz"); });
    }
    return 0;
}
