// Feeds arbitrary bytes to decode_image: an Error is a fine answer, anything else is a finding.
#include <flux2/error.hpp>
#include "image/image_file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try {
        flux2::decode_image(std::as_bytes(std::span(data, size)), "fuzz");
    } catch (const flux2::Error&) {
    }
    return 0;
}
