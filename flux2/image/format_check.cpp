// Parses chunks and segments as stb does: in every file that stb accepts, both find the same ones.
#include "image/format_check.hpp"

#include "base/check.hpp"
#include "image/image.hpp"
#include "image/png_chunk.hpp"
#include "image/webp_chunk.hpp"

#include <bitset>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

unsigned byte_at(Bytes bytes, size_t i) {
    return std::to_integer<unsigned>(bytes[i]);
}

// The decoders allocate memory for every claimed pixel. A file cannot contain more than
// max_pixels_per_byte, so larger claims are refused.
void check_size(Bytes bytes, const std::string& file, uint64_t width, uint64_t height,
                uint64_t max_pixels_per_byte) {
    check(width > 0 && height > 0 && width <= kMaxImageSide && height <= kMaxImageSide,
          ErrorKind::bad_file, file, ": the picture is ", width, " x ", height,
          " pixels, expected 1 to ", kMaxImageSide, " on either side");
    const uint64_t least_bytes = width * height / max_pixels_per_byte;
    check(bytes.size() >= least_bytes, ErrorKind::bad_file, file, ": has ", bytes.size(),
          " bytes, its ", width, " x ", height, " pixels need at least ", least_bytes,
          "; the file is truncated or damaged");
}

// By PNG's colour type: grey, RGB, palette, grey with alpha, RGB with alpha.
unsigned png_channels(unsigned colour, const std::string& file) {
    constexpr unsigned kChannels[] = {1, 0, 3, 1, 2, 0, 4};
    const unsigned channels = colour < std::size(kChannels) ? kChannels[colour] : 0;
    check(channels > 0, ErrorKind::bad_file, file, ": the PNG has an unknown colour type, ",
          colour);
    return channels;
}

// `header` is IHDR's content: width, height, bits of a value, colour type.
void check_png_header(Bytes bytes, const std::string& file, Bytes header) {
    constexpr unsigned kMaxInflation = 1032;  // bytes that deflate can make of one
    const unsigned depth = byte_at(header, 8);
    check(depth >= 1 && depth <= 16, ErrorKind::bad_file, file, ": the PNG has ", depth,
          " bits a value, expected 1 to 16");
    const unsigned bits_per_pixel = depth * png_channels(byte_at(header, 9), file);
    check_size(bytes, file, big_endian32(header, 0), big_endian32(header, 4),
               kMaxInflation * 8 / bits_per_pixel);
}

// Chunks whose first letter is a capital are needed to decode the picture. Unknown ones are refused
// here, because stb would write their names to a variable shared by all threads.
void check_png_chunk(const PngChunk& chunk, const std::string& file) {
    const bool needed = (chunk.type[0] & 0x20) == 0;
    const bool known = chunk.type == "IHDR" || chunk.type == "PLTE" || chunk.type == "IDAT" ||
                       chunk.type == "IEND";
    check(
        known || !needed, ErrorKind::bad_file, file,
        ": the PNG has a chunk of an unknown kind that is needed to decode it; save it again with "
        "another program");
}

// Flags, three bytes that are not used, then width - 1 and height - 1 in three bytes each.
void check_webp_extension(const WebpChunk& chunk, const std::string& file) {
    constexpr unsigned kAnimation = 0x02;
    check(chunk.data.size() >= kWebpExtensionBytes, ErrorKind::bad_file, file,
          ": the WebP is broken: its header has ", chunk.data.size(), " bytes, expected ",
          kWebpExtensionBytes);
    check((byte_at(chunk.data, 0) & kAnimation) == 0, ErrorKind::bad_file, file,
          ": the WebP is an animation; save one of its pictures as a file of its own");
}

// Markers (ITU-T T.81, table B.1).
enum Marker : unsigned {
    sof_baseline = 0xc0,
    sof_extended = 0xc1,
    sof_progressive = 0xc2,
    huffman_tables = 0xc4,
    end_of_image = 0xd9,
    start_of_scan = 0xda,
    quantisation_tables = 0xdb,
};

constexpr int kMaxScans = 100;  // encoders make about ten

class JpegCheck {
  public:
    JpegCheck(Bytes bytes, const std::string& file) : bytes_(bytes), file_(file) {}

    void run() {
        size_t i = find_marker(2);
        while (at(bytes_, i + 1) != end_of_image) {
            const size_t length = at(bytes_, i + 2) * 256 + at(bytes_, i + 3);
            require(length >= 2, "a segment has no length");
            at(bytes_, i + 1 + length);
            segment(at(bytes_, i + 1), bytes_.subspan(i + 4, length - 2));
            i = find_marker(i + 2 + length);
        }
    }

  private:
    // Skips entropy-coded data: up to an 0xff that is neither data (0x00), a restart marker (0xd0
    // to 0xd7) nor padding (0xff).
    size_t find_marker(size_t i) const {
        while (at(bytes_, i) != 0xff || at(bytes_, i + 1) == 0x00 || at(bytes_, i + 1) == 0xff ||
               (at(bytes_, i + 1) & 0xf8) == 0xd0) {
            i++;
        }
        return i;
    }

    void segment(unsigned marker, Bytes content) {
        switch (marker) {
            case sof_baseline:
            case sof_extended:
            case sof_progressive:
                read_frame(marker, content);
                break;
            case huffman_tables:
                read_huffman_tables(content);
                break;
            case quantisation_tables:
                read_quantisation_tables(content);
                break;
            case start_of_scan:
                check_scan(content);
                break;
            default:
                break;
        }
    }

    // Precision, height, width, number of components, then three bytes each.
    void read_frame(unsigned marker, Bytes content) {
        progressive_ = marker == sof_progressive;
        const uint64_t height = at(content, 1) * 256 + at(content, 2);
        const uint64_t width = at(content, 3) * 256 + at(content, 4);
        // The sparsest sampling, 4x1 with 1x4, has a block for every 128 pixels; it takes a bit.
        check_size(bytes_, file_, width, height, 128 * 8);
        const unsigned n_components = at(content, 5);
        for (size_t i = 0; i < n_components; i++) {
            used_quantisation_.set(at(content, 6 + 3 * i + 2) & 15);
        }
    }

    // Per table: class and number, how many codes of 1 to 16 bits, then a byte for each code.
    void read_huffman_tables(Bytes content) {
        while (!content.empty()) {
            size_t n_codes = 0;
            for (size_t i = 1; i <= 16; i++) {
                n_codes += at(content, i);
            }
            require(n_codes <= 256, "a Huffman table has more than 256 codes");
            at(content, 16 + n_codes);
            const unsigned which = at(content, 0);
            (which >> 4 == 0 ? dc_ : ac_).set(which & 15);
            content = content.subspan(17 + n_codes);
        }
    }

    // Per table: element size and number, then 64 elements of one or two bytes.
    void read_quantisation_tables(Bytes content) {
        while (!content.empty()) {
            const size_t size = at(content, 0) >> 4 == 0 ? 64 : 128;
            at(content, size);
            quantisation_.set(at(content, 0) & 15);
            content = content.subspan(1 + size);
        }
    }

    // Number of components, for each its number and its tables, then the range of coefficients and
    // the bits of this scan.
    void check_scan(Bytes content) {
        n_scans_++;
        require(n_scans_ <= kMaxScans, "there are more than 100 scans");
        require((used_quantisation_ & ~quantisation_).none(), "a quantisation table is missing");
        const size_t n_components = at(content, 0);
        const unsigned first = at(content, 1 + 2 * n_components);
        const bool refines = at(content, 3 + 2 * n_components) >> 4 != 0;
        const bool needs_dc = !progressive_ || (first == 0 && !refines);
        const bool needs_ac = !progressive_ || first != 0;
        for (size_t i = 0; i < n_components; i++) {
            const unsigned tables = at(content, 2 + 2 * i);
            require(!needs_dc || dc_[tables >> 4], "a Huffman table is missing");
            require(!needs_ac || ac_[tables & 15], "a Huffman table is missing");
        }
    }

    // A byte of the file or of a segment's content.
    unsigned at(Bytes bytes, size_t i) const {
        if (i >= bytes.size()) {
            fail(ErrorKind::bad_file, file_, ": the JPEG ",
                 bytes.data() == bytes_.data() ? "ends before its end marker" : "is broken",
                 ", expected more than ", bytes.size(), " bytes; the file is truncated or damaged");
        }
        return byte_at(bytes, i);
    }

    void require(bool condition, const char* otherwise) const {
        check(condition, ErrorKind::bad_file, file_, ": the JPEG is broken: ", otherwise);
    }

    Bytes bytes_;
    const std::string& file_;
    bool progressive_ = false;
    int n_scans_ = 0;
    std::bitset<16> dc_;  // tables defined so far
    std::bitset<16> ac_;
    std::bitset<16> quantisation_;
    std::bitset<16> used_quantisation_;
};

}  // namespace

void check_png(Bytes bytes, const std::string& file) {
    PngChunks chunks(bytes, file);
    const std::optional<PngChunk> header = chunks.next();
    check(!header || header->type != "CgBI", ErrorKind::bad_file, file,
          ": is a picture in Apple's form of PNG for iPhones (CgBI), which is not read; open it on "
          "a Mac and save it as PNG or JPEG, or convert it with xcrun pngcrush "
          "-revert-iphone-optimizations");
    check(header && header->type == "IHDR" && header->data.size() == 13, ErrorKind::bad_file, file,
          ": the PNG does not begin with its header");
    check_png_header(bytes, file, header->data);
    while (const std::optional<PngChunk> chunk = chunks.next()) {
        check_png_chunk(*chunk, file);
    }
}

void check_jpeg(Bytes bytes, const std::string& file) {
    JpegCheck(bytes, file).run();
}

void check_webp(Bytes bytes, const std::string& file) {
    WebpChunks chunks(bytes, file);
    std::optional<WebpChunk> chunk = chunks.next();
    if (chunk && chunk->type == kWebpExtended) {
        check_webp_extension(*chunk, file);
        do {
            chunk = chunks.next();
        } while (chunk && !chunk->is_picture());
    }
    const std::optional<ImageSize> size = chunk ? webp_picture_size(*chunk) : std::nullopt;
    check(size.has_value(), ErrorKind::bad_file, file,
          ": the WebP is broken: it has no picture, or one that does not begin with its size");
    // The cheapest macroblock of 16 x 16 pixels is coded in 3.4 bits, at the fixed probabilities of
    // RFC 6386, section 11.2: not 4 x 4, prediction DC for brightness and for colour.
    constexpr uint64_t kMostPixelsOfLossy = 16 * 16 * 8 / 3;
    const bool lossy = chunk->type == kWebpLossy;
    check_size(bytes, file, static_cast<uint64_t>(size->width), static_cast<uint64_t>(size->height),
               lossy ? kMostPixelsOfLossy : std::numeric_limits<uint64_t>::max());
    while (chunks.next()) {
        // throws when the file ends within it
    }
}

}  // namespace flux2
