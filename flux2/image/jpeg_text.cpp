// EXIF data have to fit into one segment. A text in comment segments is cut into as many as it
// needs, each with a line before it: "flux2 text 1/3 KEY".
#include "image/jpeg_text.hpp"

#include "base/check.hpp"
#include "base/utf8.hpp"
#include "image/exif.hpp"
#include "image/image_text.hpp"
#include "image/jpeg_segment.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kMark = "flux2 text ";
constexpr size_t kPartBytes = 60'000;

std::string_view text_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// ---- Reading ----

// A piece of a text, as one segment has it.
struct TextPart {
    size_t number = 0, n_parts = 0;  // counted from 1
    std::string_view key, text;
};

// Takes digits from the beginning and the character after them.
std::optional<size_t> take_number(std::string_view& rest, char after) {
    size_t value = 0;
    const char* end = rest.data() + rest.size();
    const auto [next, error] = std::from_chars(rest.data(), end, value);
    if (error != std::errc() || next == end || *next != after) {
        return std::nullopt;
    }
    rest.remove_prefix(static_cast<size_t>(next - rest.data()) + 1);
    return value;
}

std::optional<TextPart> parse_part(std::string_view comment) {
    if (!comment.starts_with(kMark)) {
        return std::nullopt;
    }
    comment.remove_prefix(kMark.size());
    const auto number = take_number(comment, '/');
    const auto n_parts = number ? take_number(comment, ' ') : std::nullopt;
    const size_t end = comment.find('\n');
    if (!n_parts || end == std::string_view::npos) {
        return std::nullopt;
    }
    return TextPart{*number, *n_parts, comment.substr(0, end), comment.substr(end + 1)};
}

// Joins parts that follow each other.
class PartReader {
  public:
    void read(const TextPart& part) {
        const bool follows = part.number == 1 || (part.number == n_joined_ + 1 &&
                                                  part.key == joined_.key && n_joined_ > 0);
        if (!follows || part.text.size() > left_) {
            n_joined_ = 0;
            return;
        }
        if (part.number == 1) {
            joined_ = {std::string(part.key), ""};
        }
        left_ -= part.text.size();
        joined_.text += part.text;
        n_joined_ = part.number;
        if (part.number == part.n_parts) {
            n_joined_ = 0;
            if (!text_problem(joined_)) {
                texts_.push_back(joined_);
            }
        }
    }

    std::vector<ImageText> take() { return std::move(texts_); }

  private:
    size_t left_ = kMaxTextBytes;
    ImageText joined_;
    size_t n_joined_ = 0;  // parts in it
    std::vector<ImageText> texts_;
};

// ---- Writing ----

// Whether the text was written to one EXIF segment from which it is read exactly.
bool append_as_exif(std::vector<std::byte>& out, const std::string& text) {
    if (text.size() > kMaxJpegSegment) {
        return false;
    }
    const std::optional<std::string> exif = exif_with_comment(text);
    if (!exif || kJpegExifName.size() + exif->size() > kMaxJpegSegment) {
        return false;
    }
    append_jpeg_segment(out, kJpegApp1, std::string(kJpegExifName) + *exif);
    return true;
}

void append_parts(std::vector<std::byte>& out, const ImageText& text) {
    const size_t n_parts = std::max<size_t>(1, (text.text.size() + kPartBytes - 1) / kPartBytes);
    for (size_t i = 0; i < n_parts; ++i) {
        append_jpeg_segment(out, kJpegComment,
                            concat(kMark, i + 1, "/", n_parts, " ", text.key, "\n",
                                   text.text.substr(i * kPartBytes, kPartBytes)));
    }
}

}  // namespace

std::vector<ImageText> read_jpeg_texts(Bytes bytes) {
    std::vector<ImageText> texts;
    if (auto comment = exif_user_comment(jpeg_exif(bytes))) {
        texts.push_back({std::string(kCommentKey), std::move(*comment)});
    }
    PartReader parts;
    JpegSegments segments(bytes);
    while (const std::optional<JpegSegment> segment = segments.next()) {
        const auto part =
            segment->marker == kJpegComment ? parse_part(text_of(segment->data)) : std::nullopt;
        if (part) {
            parts.read(*part);
        }
    }
    for (ImageText& text : parts.take()) {
        texts.push_back(std::move(text));
    }
    return texts;
}

void insert_jpeg_texts(std::vector<std::byte>& jpeg, const std::vector<ImageText>& texts) {
    std::vector<std::byte> segments;
    bool has_exif = false;
    for (const ImageText& text : texts) {
        const auto problem = text_problem(text);
        check(!problem, ErrorKind::bad_argument, problem.value_or(""));
        if (text.key == kCommentKey && !has_exif && append_as_exif(segments, text.text)) {
            has_exif = true;
        } else {
            append_parts(segments, text);
        }
        check(segments.size() <= kMaxTextBytes, ErrorKind::bad_argument,
              "the texts for a JPEG take more than ", kMaxTextBytes, " bytes");
    }
    const auto at = jpeg.begin() + static_cast<std::ptrdiff_t>(end_of_jpeg_header(jpeg));
    jpeg.insert(at, segments.begin(), segments.end());
}

}  // namespace flux2
