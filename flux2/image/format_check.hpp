// What must hold before a picture is decoded. Much of it is what stb's decoders lack: version 2.27,
// which Debian 12 ships, allocates what a PNG chunk claims, and with a malicious JPEG writes past
// its tables and uses undefined ones; every version fills in the rest of a truncated JPEG.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace flux2 {

// All throw bad_file unless the file is whole, up to its end marker, its sides are in
// 1..kMaxImageSide, and it is long enough to hold that many pixels. `file` names it in errors.

// Also: there is no chunk that is needed to decode it and unknown to stb.
void check_png(std::span<const std::byte> bytes, const std::string& file);

// Also: all Huffman and quantisation tables fit and are defined before a scan uses them, and there
// are not absurdly many scans.
void check_jpeg(std::span<const std::byte> bytes, const std::string& file);

// Also: it is no animation. A lossless WebP may be of any length: pixels of one colour take none.
void check_webp(std::span<const std::byte> bytes, const std::string& file);

}  // namespace flux2
