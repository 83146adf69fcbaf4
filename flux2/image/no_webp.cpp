// What is built without libwebp.
#include "image/webp_codec.hpp"

#include "base/check.hpp"

namespace flux2 {

bool supports_webp() {
    return false;
}

Pixels decode_webp(std::span<const std::byte>, const std::string& file) {
    fail(ErrorKind::unsupported, file, ": ", kNoWebp);
}

std::vector<std::byte> encode_webp(const Image&, const ImageCompression&) {
    fail(ErrorKind::unsupported, kNoWebp);
}

}  // namespace flux2
