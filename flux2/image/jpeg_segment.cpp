#include "image/jpeg_segment.hpp"

namespace flux2 {

std::optional<JpegSegment> JpegSegments::next() {
    constexpr std::byte kFirst{0xff};
    constexpr std::byte kStartOfScan{0xda};
    while (at_ + 4 <= bytes_.size() && bytes_[at_] == kFirst && bytes_[at_ + 1] == kFirst) {
        at_++;  // padding
    }
    if (at_ + 4 > bytes_.size() || bytes_[at_] != kFirst || bytes_[at_ + 1] == kStartOfScan) {
        return std::nullopt;
    }
    const auto length = std::to_integer<size_t>(bytes_[at_ + 2]) << 8 |
                        std::to_integer<size_t>(bytes_[at_ + 3]);  // counts itself
    if (length < 2 || length > bytes_.size() - at_ - 2) {
        return std::nullopt;
    }
    const JpegSegment segment{bytes_[at_ + 1], bytes_.subspan(at_ + 4, length - 2),
                              at_ + 2 + length};
    at_ = segment.end;
    return segment;
}

size_t end_of_jpeg_header(std::span<const std::byte> jpeg) {
    const auto first = JpegSegments(jpeg).next();
    return first && first->marker == kJpegApp0 ? first->end : 2;
}

void append_jpeg_segment(std::vector<std::byte>& out, std::byte marker, std::string_view data) {
    const size_t length = data.size() + 2;
    out.insert(out.end(), {std::byte{0xff}, marker, static_cast<std::byte>(length >> 8),
                           static_cast<std::byte>(length & 0xff)});
    const auto content = std::as_bytes(std::span(data));
    out.insert(out.end(), content.begin(), content.end());
}

}  // namespace flux2
