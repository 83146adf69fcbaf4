// Picture files: detects the format, checks it, and handles orientation, masks, profiles and texts.
#include <flux2/image.hpp>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/letter_case.hpp"
#include "base/log.hpp"
#include "image/codec.hpp"
#include "image/colour_profile.hpp"
#include "image/embedded_profile.hpp"
#include "image/exif.hpp"
#include "image/format_check.hpp"
#include "image/image.hpp"
#include "image/jpeg_text.hpp"
#include "image/png_text.hpp"
#include "image/rgb_image.hpp"
#include "image/webp_chunk.hpp"
#include "image/webp_codec.hpp"
#include "image/webp_text.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

using Bytes = std::span<const std::byte>;

bool starts_with(Bytes bytes, std::initializer_list<uint8_t> signature) {
    return bytes.size() >= signature.size() &&
           std::equal(signature.begin(), signature.end(), bytes.begin(),
                      [](uint8_t a, std::byte b) { return std::byte{a} == b; });
}

// The format of a file that may be decoded.
ImageFormat checked_format(Bytes bytes, const std::string& file) {
    if (starts_with(bytes, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'})) {
        check_png(bytes, file);
        return ImageFormat::png;
    }
    if (is_webp(bytes)) {
        check_webp(bytes, file);
        return ImageFormat::webp;
    }
    check(starts_with(bytes, {0xff, 0xd8, 0xff}), ErrorKind::bad_file, file,
          ": is neither a PNG nor a JPEG nor a WebP; convert it to one of them");
    check_jpeg(bytes, file);
    return ImageFormat::jpeg;
}

// The EXIF data of a file that has passed its check.
Bytes exif_of(ImageFormat format, Bytes bytes, const std::string& file) {
    return format == ImageFormat::png    ? png_exif(bytes, file)
           : format == ImageFormat::webp ? webp_exif(bytes, file)
                                         : jpeg_exif(bytes);
}

Image decode(Bytes bytes, const std::string& name, Alpha alpha, ProfileUse use) {
    const ImageFormat format = checked_format(bytes, name);
    Image image = rgb_image(format, bytes, name, alpha, use);
    return turn_upright(std::move(image), exif_orientation(exif_of(format, bytes, name)));
}

// Rec. 601, as Pillow's convert("L").
uint8_t brightness(int red, int green, int blue) {
    return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

// What is repainted, as a grey picture: by transparency where there is any, else what is bright.
Image mask_values(const Pixels& pixels, MaskAlpha alpha) {
    const auto n_channels = static_cast<size_t>(pixels.n_channels);
    const size_t n = static_cast<size_t>(pixels.width) * static_cast<size_t>(pixels.height);
    const uint8_t* in = pixels.values.get();
    const bool has_alpha = n_channels % 2 == 0;
    bool by_brightness = alpha != MaskAlpha::only_holes;
    for (size_t i = 0; has_alpha && i < n; ++i) {
        by_brightness = by_brightness && in[i * n_channels + n_channels - 1] == 255;
    }
    Image grey{pixels.width, pixels.height, {}};
    grey.rgb.reserve(3 * n);
    for (size_t i = 0; i < n; i++, in += n_channels) {
        const int opacity = has_alpha ? in[n_channels - 1] : 255;
        const int value = !by_brightness    ? (alpha == MaskAlpha::opaque ? opacity : 255 - opacity)
                          : n_channels >= 3 ? brightness(in[0], in[1], in[2])
                                            : in[0];
        grey.rgb.insert(grey.rgb.end(), 3, static_cast<uint8_t>(value));
    }
    return grey;
}

// Whether a picture with transparent pixels shows nothing else than white and black, and white: a
// mask painted for its brightness.
bool is_painted_white(const Pixels& pixels) {
    constexpr uint8_t kHalf = 128;
    constexpr int kNearly = 16;  // lossy formats change colours
    const auto n_channels = static_cast<size_t>(pixels.n_channels);
    if (n_channels % 2 != 0) {
        return false;
    }
    const size_t n = static_cast<size_t>(pixels.width) * static_cast<size_t>(pixels.height);
    const uint8_t* in = pixels.values.get();
    bool has_holes = false;
    bool has_white = false;
    for (size_t i = 0; i < n; i++, in += n_channels) {
        const uint8_t opacity = in[n_channels - 1];
        has_holes = has_holes || opacity == 0;
        if (opacity < kHalf) {
            continue;
        }
        const auto [least, most] = std::minmax_element(in, in + n_channels - 1);
        has_white = has_white || *least >= 255 - kNearly;
        if (*least<255 - kNearly&& * most> kNearly) {
            return false;
        }
    }
    return has_holes && has_white;
}

}  // namespace

Image decode_image(Bytes bytes, const std::string& name, Alpha alpha) {
    return decode(bytes, name, alpha, ProfileUse::convert);
}

Image decode_image_with_profile(Bytes bytes, const std::string& name, Alpha alpha) {
    return decode(bytes, name, alpha, ProfileUse::keep);
}

Mask decode_mask(Bytes bytes, const std::string& name, MaskAlpha alpha) {
    const ImageFormat format = checked_format(bytes, name);
    const Pixels pixels = file_pixels(format, bytes, name);
    if (alpha == MaskAlpha::holes && is_painted_white(pixels)) {
        log(LogLevel::warning,
            concat(name,
                   ": is painted in white on a transparent layer, and what is transparent "
                   "is repainted; to repaint what is painted, use ",
                   Setting::mask_invert, " or fill the layer below with black"));
    }
    Image values = mask_values(pixels, alpha);
    const Image upright =
        turn_upright(std::move(values), exif_orientation(exif_of(format, bytes, name)));
    Mask mask{upright.width, upright.height, {}};
    for (size_t i = 0; i < upright.rgb.size(); i += 3) {
        mask.values.push_back(upright.rgb[i]);
    }
    return mask;
}

Mask load_mask(const fs::path& path) {
    const MappedFile file(path);
    return decode_mask(file.bytes(), path.string());
}

std::vector<ImageText> decode_image_texts(Bytes bytes, const std::string& name) {
    const ImageFormat format = checked_format(bytes, name);
    return format == ImageFormat::png    ? read_png_texts(bytes, name)
           : format == ImageFormat::webp ? read_webp_texts(bytes, name)
                                         : read_jpeg_texts(bytes);
}

ImageFormat image_format_of(const fs::path& path) {
    const std::string extension = to_lower(path.extension().string());
    if (extension == ".png" || (extension.empty() && is_stream(path))) {
        return ImageFormat::png;
    }
    if (extension == ".jpg" || extension == ".jpeg") {
        return ImageFormat::jpeg;
    }
    if (extension == ".webp") {
        check(supports_webp(), ErrorKind::unsupported, path.string(), ": ", kNoWebp);
        return ImageFormat::webp;
    }
    check(extension == ".bmp", ErrorKind::bad_argument, path.string(),
          ": pictures are saved under names ending in .png, .jpg, .jpeg, .webp or .bmp");
    return ImageFormat::bmp;
}

std::vector<std::byte> encode_image(const Image& image, ImageFormat format,
                                    const std::vector<ImageText>& texts,
                                    const ImageCompression& compression) {
    check_image(image);
    check(compression.quality >= 0 && compression.quality <= 100, ErrorKind::bad_argument,
          "the quality of a picture is ", compression.quality, ", expected 0 to 100");
    check(image.profile.size() <= kMaxProfileBytes, ErrorKind::bad_argument,
          "the colour profile of a picture has ", image.profile.size(), " bytes, at most ",
          kMaxProfileBytes, " can be written");
    if (format == ImageFormat::bmp && !image.profile.empty()) {
        return encode_image(to_srgb(image), format, texts, compression);
    }
    std::vector<std::byte> bytes = format == ImageFormat::webp
                                       ? encode_webp(image, compression)
                                       : encode_pixels(format, image, compression.quality);
    // Texts of a JPEG come before its profile, those of a WebP behind its picture.
    if (!image.profile.empty() && format != ImageFormat::webp) {
        insert_profile(format, bytes, image.profile);
    }
    if (format == ImageFormat::png) {
        insert_png_texts(bytes, texts);
    } else if (format == ImageFormat::jpeg) {
        insert_jpeg_texts(bytes, texts);
    } else if (format == ImageFormat::webp) {
        insert_webp_texts(bytes, texts);
    }
    if (!image.profile.empty() && format == ImageFormat::webp) {
        insert_profile(format, bytes, image.profile);
    }
    return bytes;
}

Image load_image(const fs::path& path, Alpha alpha) {
    const MappedFile file(path);
    return decode_image(file.bytes(), path.string(), alpha);
}

Image load_image_with_profile(const fs::path& path, Alpha alpha) {
    const MappedFile file(path);
    return decode_image_with_profile(file.bytes(), path.string(), alpha);
}

std::vector<ImageText> read_image_texts(const fs::path& path) {
    const MappedFile file(path);
    return decode_image_texts(file.bytes(), path.string());
}

void save_image(const fs::path& path, const Image& image, const std::vector<ImageText>& texts) {
    const std::vector<std::byte> bytes = encode_image(image, image_format_of(path), texts);
    write_whole_file(path, bytes);
}

bool save_new_image(const fs::path& path, const Image& image, const std::vector<ImageText>& texts) {
    const std::vector<std::byte> bytes = encode_image(image, image_format_of(path), texts);
    AtomicFile file(path);
    file.write_at(0, bytes);
    return file.commit_new();
}

}  // namespace flux2
