// stb mixes inks by itself, or takes them for brightness and colour where Adobe's segment is
// missing. Without that segment it returns the plane that the frame header lists first as grey, so
// the header is changed to list each of the four first in turn.
#include "image/jpeg_cmyk.hpp"

#include "base/check.hpp"
#include "image/jpeg_segment.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kPlanes = 4;
// A frame header (ITU-T T.81, B.2.2): precision, height, width, how many planes, then three bytes
// for each.
constexpr size_t kCountAt = 5;
constexpr size_t kPlaneBytes = 3;

bool is_frame_header(const JpegSegment& segment) {
    const auto marker = std::to_integer<unsigned>(segment.marker);
    return marker >= 0xc0 && marker <= 0xc2 && segment.data.size() > kCountAt;
}

// Offsets within a file.
struct Layout {
    size_t planes = 0;  // of the first plane in the frame header; 0: there is no header
    size_t n_planes = 0;
    std::vector<size_t> adobe_markers;  // their second bytes
    bool is_ycck = false;
};

Layout layout_of(Bytes jpeg) {
    constexpr std::string_view kAdobe = "Adobe";
    constexpr size_t kTransformAt = 11;
    constexpr std::byte kNoTransform{0};
    Layout layout;
    JpegSegments segments(jpeg);
    while (const std::optional<JpegSegment> segment = segments.next()) {
        const size_t at = segment->end - segment->data.size();
        const std::string_view text(reinterpret_cast<const char*>(segment->data.data()),
                                    segment->data.size());
        if (is_frame_header(*segment) && layout.planes == 0) {
            layout.planes = at + kCountAt + 1;
            layout.n_planes = std::to_integer<size_t>(segment->data[kCountAt]);
        } else if (segment->marker == kJpegApp14 && text.starts_with(kAdobe)) {
            layout.adobe_markers.push_back(at - 3);
            // libjpeg takes a transform that it does not know for YCCK, too.
            layout.is_ycck =
                text.size() > kTransformAt && segment->data[kTransformAt] != kNoTransform;
        }
    }
    return layout;
}

uint8_t clamped(double value) {
    return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0, 255.0)));
}

// Brightness and colour (JFIF 1.02) of the complements of three inks.
void inks_of_ycc(uint8_t* inks) {
    const double y = inks[0];
    const double cb = inks[1] - 128.0;
    const double cr = inks[2] - 128.0;
    inks[0] = static_cast<uint8_t>(255 - clamped(y + 1.402 * cr));
    inks[1] = static_cast<uint8_t>(255 - clamped(y - 0.344136 * cb - 0.714136 * cr));
    inks[2] = static_cast<uint8_t>(255 - clamped(y + 1.772 * cb));
}

}  // namespace

bool has_four_planes(Bytes jpeg) {
    return layout_of(jpeg).n_planes == kPlanes;
}

Pixels decode_cmyk(Bytes jpeg, const std::string& file) {
    const Layout layout = layout_of(jpeg);
    check(layout.n_planes == kPlanes && layout.planes + kPlanes * kPlaneBytes <= jpeg.size(),
          ErrorKind::bad_file, file, ": the JPEG is broken: its frame header is too short");
    std::vector<std::byte> changed(jpeg.begin(), jpeg.end());
    for (const size_t marker : layout.adobe_markers) {
        changed[marker] = kJpegApp15;  // a kind that decoders skip
    }
    const auto planes = changed.begin() + static_cast<std::ptrdiff_t>(layout.planes);
    Pixels inks{0, 0, static_cast<int>(kPlanes), {nullptr, free}};
    size_t n = 0;
    for (size_t plane = 0; plane < kPlanes; ++plane) {
        const Pixels values = decode_first_plane(changed, file);
        if (!inks.values) {
            inks.width = values.width;
            inks.height = values.height;
            n = static_cast<size_t>(values.width) * static_cast<size_t>(values.height);
            inks.values.reset(static_cast<uint8_t*>(std::malloc(kPlanes * n)));
            check(inks.values != nullptr, ErrorKind::out_of_memory, file,
                  ": no memory to decode a picture of ", values.width, " x ", values.height,
                  " pixels");
        }
        for (size_t i = 0; i < n; ++i) {
            inks.values.get()[kPlanes * i + plane] = values.values.get()[i];
        }
        std::rotate(planes, planes + kPlaneBytes, planes + kPlanes * kPlaneBytes);
    }
    for (size_t i = 0; layout.is_ycck && i < n; ++i) {
        inks_of_ycc(inks.values.get() + kPlanes * i);
    }
    return inks;
}

Pixels rgb_of_inks(Pixels inks) {
    const size_t n = static_cast<size_t>(inks.width) * static_cast<size_t>(inks.height);
    const uint8_t* in = inks.values.get();
    uint8_t* out = inks.values.get();
    for (size_t i = 0; i < n; ++i, in += kPlanes) {
        const int black = in[3];
        for (const int ink : {in[0], in[1], in[2]}) {
            *out++ = static_cast<uint8_t>((ink * black + 127) / 255);
        }
    }
    inks.n_channels = 3;
    return inks;
}

}  // namespace flux2
