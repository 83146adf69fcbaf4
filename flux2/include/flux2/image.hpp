// Pictures as the library takes and gives them, their files, and the same in memory.
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

// What becomes of transparency.
enum class Alpha {
    drop,   // the colour below it shows, as in the reference implementation; logs a warning
    white,  // blended over white
};

// Reads a PNG or a JPEG, whatever its name ends in. Grey and palette become RGB, 16 bits 8; the
// orientation in EXIF data is applied, colour profiles are not. Throws bad_file for a missing,
// broken or truncated file, one of another format, and a picture with a side over 16384 pixels;
// sizes are checked before anything is decoded.
FLUX2_API Image load_image(const std::filesystem::path& path, Alpha alpha = Alpha::drop);
// The same from a file's bytes in memory; `name` stands for them in errors.
FLUX2_API Image decode_image(std::span<const std::byte> bytes,
                             const std::string& name = "the picture", Alpha alpha = Alpha::drop);

// A piece of text inside a PNG, such as the settings it was made with.
struct ImageText {
    std::string key;   // 1 to 79 Latin letters, digits, spaces
    std::string text;  // UTF-8
};

// Writes a PNG, a JPEG (quality 95, colour at full resolution) or a BMP, as the name ends in .png,
// .jpg, .jpeg or .bmp; only a PNG takes texts along. The file appears whole or not at all, behind a
// symbolic link too. A pipe or a device such as /dev/null takes the bytes and stays what it is,
// those of a PNG when its name has no ending. Throws bad_argument for another ending or an image
// whose sizes do not fit its bytes, bad_file or out_of_disk when it cannot be written.
FLUX2_API void save_image(const std::filesystem::path& path, const Image& image,
                          const std::vector<ImageText>& texts = {});
// The same for a file that is not there yet. Returns false, and writes nothing, when it is.
FLUX2_API bool save_new_image(const std::filesystem::path& path, const Image& image,
                              const std::vector<ImageText>& texts = {});

enum class ImageFormat { png, jpeg, bmp };

// The file that save_image would write. Throws bad_argument as it does, and out_of_memory.
FLUX2_API std::vector<std::byte> encode_image(const Image& image,
                                              ImageFormat format = ImageFormat::png,
                                              const std::vector<ImageText>& texts = {});

// The texts of a PNG (tEXt, zTXt and iTXt); none for a JPEG. Throws bad_file as load_image does.
FLUX2_API std::vector<ImageText> read_image_texts(const std::filesystem::path& path);
// The same from a file's bytes in memory; `name` stands for them in errors.
FLUX2_API std::vector<ImageText> decode_image_texts(std::span<const std::byte> bytes,
                                                    const std::string& name = "the picture");

}  // namespace flux2
