// Feeds arbitrary bytes to parse_safetensors: an Error is expected, anything else is a finding.
#include <flux2/error.hpp>
#include "formats/safetensors.hpp"
#include "touch_tensors.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try {
        flux2::fuzz::touch_tensors(
            flux2::parse_safetensors("fuzz", std::as_bytes(std::span(data, size))));
    } catch (const flux2::Error&) {
    }
    return 0;
}
