// Images: in memory, in files, and as the bytes of a file.
#pragma once

#include <flux2/export.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// 8-bit RGB without padding: rows from top to bottom, three bytes a pixel.
struct Image {
    int width = 0;
    int height = 0;
    std::vector<uint8_t> rgb;
};

// How transparency is handled.
enum class Alpha {
    drop,   // alpha is ignored, as in the reference implementation; logs a warning
    white,  // blended over white
};

// Reads a PNG or a JPEG, whatever its name ends in. Grey and palettes are converted to RGB, 16 bits
// to 8; the orientation in EXIF data is applied, colour profiles are not. Throws bad_file for a
// missing, broken or truncated file, one of another format, and a picture with a side over 16384
// pixels; sizes are checked before anything is decoded.
FLUX2_API Image load_image(const std::filesystem::path& path, Alpha alpha = Alpha::drop);
// The same from a file's bytes in memory; `name` stands for them in errors.
FLUX2_API Image decode_image(std::span<const std::byte> bytes,
                             const std::string& name = "the picture", Alpha alpha = Alpha::drop);

// One byte a pixel, rows from top to bottom. In a mask, 255 is repainted, 0 is kept, and values
// between them are blended.
struct Mask {
    int width = 0;
    int height = 0;
    std::vector<uint8_t> values;
};

// Reads a mask from a picture: its brightness, so that white is repainted; in a picture with
// transparent pixels its transparency instead, so that holes are repainted. Throws as load_image
// does.
FLUX2_API Mask load_mask(const std::filesystem::path& path);
FLUX2_API Mask decode_mask(std::span<const std::byte> bytes, const std::string& name = "the mask");

// A piece of text inside a PNG or a JPEG, such as the settings it was made with.
struct ImageText {
    std::string key;   // 1 to 79 Latin letters, digits, spaces
    std::string text;  // UTF-8
};

// Writes a PNG, a JPEG (quality 95, colour at full resolution) or a BMP, depending on the extension
// .png, .jpg, .jpeg or .bmp; texts are written to a PNG and a JPEG (docs/formats.md). Files are
// written atomically; a symbolic link is kept and its target replaced. Bytes are written directly
// to a pipe or a device such as /dev/null, as a PNG when its name has no extension. Throws
// bad_argument for another extension, a text with a wrong key or more than 8 MB of them, or an
// image whose sizes do not match its bytes, bad_file or out_of_disk when it cannot be written.
FLUX2_API void save_image(const std::filesystem::path& path, const Image& image,
                          const std::vector<ImageText>& texts = {});
// The same, but only if the file does not exist yet; else returns false and writes nothing.
FLUX2_API bool save_new_image(const std::filesystem::path& path, const Image& image,
                              const std::vector<ImageText>& texts = {});

enum class ImageFormat { png, jpeg, bmp };

// The file that save_image would write. Throws bad_argument as it does, and out_of_memory.
FLUX2_API std::vector<std::byte> encode_image(const Image& image,
                                              ImageFormat format = ImageFormat::png,
                                              const std::vector<ImageText>& texts = {});

// The texts of a PNG (tEXt, zTXt and iTXt), or those of a JPEG: what save_image wrote, and the user
// comment of EXIF data as `parameters`, where other programs keep it. Throws bad_file as load_image
// does, and for a broken text of a PNG; a broken one of a JPEG is left out.
FLUX2_API std::vector<ImageText> read_image_texts(const std::filesystem::path& path);
// The same from a file's bytes in memory; `name` stands for them in errors.
FLUX2_API std::vector<ImageText> decode_image_texts(std::span<const std::byte> bytes,
                                                    const std::string& name = "the picture");

}  // namespace flux2
