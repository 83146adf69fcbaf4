#include "image/webp_codec.hpp"

#include "base/check.hpp"

#include <webp/decode.h>
#include <webp/encode.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

std::string reason(VP8StatusCode status) {
    switch (status) {
        case VP8_STATUS_NOT_ENOUGH_DATA:
        case VP8_STATUS_SUSPENDED:
            return "its data end too early";
        case VP8_STATUS_UNSUPPORTED_FEATURE:
            return "libwebp does not support a feature of it";
        default:
            return "libwebp cannot decode it";
    }
}

void check_status(VP8StatusCode status, const std::string& file, int width, int height) {
    check(status != VP8_STATUS_OUT_OF_MEMORY, ErrorKind::out_of_memory, file,
          ": no memory to decode a picture of ", width, " x ", height, " pixels");
    check(status == VP8_STATUS_OK, ErrorKind::bad_file, file,
          ": the picture is broken: ", reason(status));
}

WebPConfig encoder_config(const ImageCompression& compression) {
    constexpr int kLosslessEffort = 6;  // of 9; the default of cwebp's option for it
    WebPConfig config;
    bool ok = WebPConfigPreset(&config, WEBP_PRESET_DEFAULT,
                               static_cast<float>(compression.quality)) != 0;
    if (compression.lossless) {
        ok = ok && WebPConfigLosslessPreset(&config, kLosslessEffort) != 0;
    }
    check(ok, ErrorKind::internal, "libwebp refuses its own settings: its header has version ",
          WEBP_ENCODER_ABI_VERSION, ", the library another");
    return config;
}

}  // namespace

bool supports_webp() {
    return true;
}

Pixels decode_webp(Bytes bytes, const std::string& file) {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    WebPDecoderConfig config;
    check(WebPInitDecoderConfig(&config) != 0, ErrorKind::internal,
          "libwebp has another version than its header, ", WEBP_DECODER_ABI_VERSION);
    check_status(WebPGetFeatures(data, bytes.size(), &config.input), file, 0, 0);
    const int width = config.input.width;
    const int height = config.input.height;
    const int n_channels = config.input.has_alpha != 0 ? 4 : 3;
    const size_t row_bytes = static_cast<size_t>(width) * static_cast<size_t>(n_channels);
    const size_t n_bytes = row_bytes * static_cast<size_t>(height);

    Pixels pixels{width, height, n_channels, {static_cast<uint8_t*>(std::malloc(n_bytes)), free}};
    check_status(pixels.values ? VP8_STATUS_OK : VP8_STATUS_OUT_OF_MEMORY, file, width, height);
    config.output.colorspace = n_channels == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = {pixels.values.get(), static_cast<int>(row_bytes), n_bytes};
    check_status(WebPDecode(data, bytes.size(), &config), file, width, height);
    return pixels;
}

std::vector<std::byte> encode_webp(const Image& image, const ImageCompression& compression) {
    check(image.width <= WEBP_MAX_DIMENSION && image.height <= WEBP_MAX_DIMENSION,
          ErrorKind::bad_argument, "a WebP cannot hold a picture of ", image.width, " x ",
          image.height, " pixels, only up to ", WEBP_MAX_DIMENSION,
          " on either side; save it as PNG");
    WebPConfig config = encoder_config(compression);
    WebPPicture picture;
    check(WebPPictureInit(&picture) != 0, ErrorKind::internal,
          "libwebp has another version than its header, ", WEBP_ENCODER_ABI_VERSION);
    picture.width = image.width;
    picture.height = image.height;
    picture.use_argb = compression.lossless ? 1 : 0;
    WebPMemoryWriter writer;
    WebPMemoryWriterInit(&writer);
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = &writer;
    const std::unique_ptr<WebPPicture, void (*)(WebPPicture*)> frees_picture(&picture,
                                                                             WebPPictureFree);
    const std::unique_ptr<WebPMemoryWriter, void (*)(WebPMemoryWriter*)> frees_writer(
        &writer, WebPMemoryWriterClear);
    const bool ok = WebPPictureImportRGB(&picture, image.rgb.data(), 3 * image.width) != 0 &&
                    WebPEncode(&config, &picture) != 0;
    check(ok || picture.error_code != VP8_ENC_ERROR_OUT_OF_MEMORY, ErrorKind::out_of_memory,
          "no memory to encode a picture of ", image.width, "x", image.height, " pixels");
    check(ok, ErrorKind::unsupported, "libwebp cannot encode a picture of ", image.width, "x",
          image.height, " pixels (its error ", static_cast<int>(picture.error_code),
          "); save it as PNG");
    const auto* first = reinterpret_cast<const std::byte*>(writer.mem);
    return {first, first + writer.size};
}

}  // namespace flux2
