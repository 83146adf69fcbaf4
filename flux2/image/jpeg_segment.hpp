// The segments before a JPEG's pixels: a marker, the length, the content.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace flux2 {

// Markers (ITU-T T.81, table B.1).
constexpr std::byte kJpegApp0{0xe0};
constexpr std::byte kJpegApp1{0xe1};
constexpr std::byte kJpegApp2{0xe2};
constexpr std::byte kJpegApp14{0xee};
constexpr std::byte kJpegApp15{0xef};
constexpr std::byte kJpegComment{0xfe};

// Bytes that the content of a segment has at most: its length counts two bytes of its own.
constexpr size_t kMaxJpegSegment = 65533;

// A view of the file's bytes.
struct JpegSegment {
    std::byte marker{};
    std::span<const std::byte> data;
    size_t end = 0;  // where the next one begins
};

// Iterates over the segments of a file that begins with a JPEG's first marker, up to its pixels or
// to the first segment that is broken. The bytes must outlive this.
class JpegSegments {
  public:
    explicit JpegSegments(std::span<const std::byte> bytes) : bytes_(bytes) {}

    std::optional<JpegSegment> next();

  private:
    std::span<const std::byte> bytes_;
    size_t at_ = 2;  // after the first marker
};

// Where segments of ours are inserted: after the first segment if that is JFIF's header, else after
// the first marker.
size_t end_of_jpeg_header(std::span<const std::byte> jpeg);

// Appends a segment of at most kMaxJpegSegment bytes.
void append_jpeg_segment(std::vector<std::byte>& out, std::byte marker, std::string_view data);

}  // namespace flux2
