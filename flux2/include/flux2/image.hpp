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
    // The ICC profile that says which colours the bytes are, one of RGB. Empty: sRGB.
    std::vector<std::byte> profile = {};
};

// How transparency is handled.
enum class Alpha {
    drop,   // alpha is ignored, as in the reference implementation; logs a warning
    white,  // blended over white
};

// Reads a PNG, a JPEG or a WebP, whatever its name ends in, as sRGB. Grey, CMYK and palettes are
// converted to RGB, 16 bits to 8, colours by the file's ICC profile (docs/formats.md); a profile
// that cannot be used is ignored with a warning. The orientation in EXIF data is applied. Throws
// bad_file for a missing, broken or truncated file, one of another format, an animation, and a
// picture with a side over 16384 pixels; sizes are checked before anything is decoded. Throws
// unsupported for a WebP when supports_webp() is false.
FLUX2_API Image load_image(const std::filesystem::path& path, Alpha alpha = Alpha::drop);
// The same from a file's bytes in memory; `name` stands for them in errors.
FLUX2_API Image decode_image(std::span<const std::byte> bytes,
                             const std::string& name = "the picture", Alpha alpha = Alpha::drop);

// Read a picture as load_image does, but leave the bytes of one with a profile of RGB other than
// sRGB as they are, and return the profile with them: for a picture of which a part is kept.
FLUX2_API Image load_image_with_profile(const std::filesystem::path& path,
                                        Alpha alpha = Alpha::drop);
FLUX2_API Image decode_image_with_profile(std::span<const std::byte> bytes,
                                          const std::string& name = "the picture",
                                          Alpha alpha = Alpha::drop);

// Whether this build converts colours by profiles: it does when Little CMS was there. Otherwise
// pictures with profiles are read as if they were sRGB, with a warning.
FLUX2_API bool supports_profiles();

// The picture in sRGB, without a profile. Throws bad_argument when its profile cannot be used.
FLUX2_API Image to_srgb(const Image& image);

// One byte a pixel, rows from top to bottom. In a mask, 255 is repainted, 0 is kept, and values
// between them are blended.
struct Mask {
    int width = 0;
    int height = 0;
    std::vector<uint8_t> values;
};

// What a mask repaints in a picture with transparent pixels.
enum class MaskAlpha {
    holes,       // what is transparent
    opaque,      // what is not, as in AUTOMATIC1111's web interface
    only_holes,  // as holes; nothing where no pixel is transparent, as in OpenAI's API
};

// Reads a mask from a picture: its brightness, so that white is repainted; in a picture with
// transparent pixels, and with only_holes in any, its transparency instead. Throws as load_image
// does.
FLUX2_API Mask load_mask(const std::filesystem::path& path);
FLUX2_API Mask decode_mask(std::span<const std::byte> bytes, const std::string& name = "the mask",
                           MaskAlpha alpha = MaskAlpha::holes);

// A piece of text inside a PNG, a JPEG or a WebP, such as the settings it was made with.
struct ImageText {
    std::string key;   // 1 to 79 printable characters of ASCII
    std::string text;  // UTF-8
};

enum class ImageFormat { png, jpeg, bmp, webp };

// Whether this build reads and writes WebP: it does when libwebp was there.
FLUX2_API bool supports_webp();

// The format that save_image writes under this name: by the extension .png, .jpg, .jpeg, .webp or
// .bmp, and a PNG for a pipe or a device such as /dev/null whose name has none. Throws bad_argument
// for another extension, unsupported for .webp when supports_webp() is false.
FLUX2_API ImageFormat image_format_of(const std::filesystem::path& path);

// Writes a file in the format of its name; a JPEG and a WebP with the default ImageCompression.
// Texts and the picture's profile are written to all but a BMP, which gets sRGB (docs/formats.md).
// Files are written atomically; a symbolic link is kept and its target replaced; to a pipe or a
// device the bytes are written directly. Throws as image_format_of does, bad_argument for a text
// with a wrong key or more than 8 MB of them, an image whose sizes do not match its bytes, a
// profile that cannot be used or is larger than any JPEG can hold, 16 MB, or a WebP with a side
// over 16383 pixels, bad_file or out_of_disk when it cannot be written.
FLUX2_API void save_image(const std::filesystem::path& path, const Image& image,
                          const std::vector<ImageText>& texts = {});
// The same, but only if the file does not exist yet; else returns false and writes nothing.
FLUX2_API bool save_new_image(const std::filesystem::path& path, const Image& image,
                              const std::vector<ImageText>& texts = {});

// How a JPEG and a WebP are compressed. A PNG and a BMP keep every pixel.
struct ImageCompression {
    // 0 to 100, on the scale of the format's encoder (stb, libwebp), so that equal numbers give
    // files of other sizes elsewhere; a JPEG has colour at full resolution above 90.
    int quality = 95;
    bool lossless = false;  // a WebP keeps every pixel, whatever the quality; a JPEG never does
};

// The file that save_image would write. Throws bad_argument as it does and for a quality out of
// range, unsupported for a WebP when supports_webp() is false, and out_of_memory.
FLUX2_API std::vector<std::byte> encode_image(const Image& image,
                                              ImageFormat format = ImageFormat::png,
                                              const std::vector<ImageText>& texts = {},
                                              const ImageCompression& compression = {});

// The texts of a PNG (tEXt, zTXt and iTXt), or those of a JPEG or a WebP: what save_image wrote,
// and the user comment of EXIF data as `parameters`, where other programs keep it. Throws bad_file
// as load_image does, and for a broken text of a PNG; a broken one of the others is left out.
FLUX2_API std::vector<ImageText> read_image_texts(const std::filesystem::path& path);
// The same from a file's bytes in memory; `name` stands for them in errors.
FLUX2_API std::vector<ImageText> decode_image_texts(std::span<const std::byte> bytes,
                                                    const std::string& name = "the picture");

}  // namespace flux2
