// A WebP may have chunks of unknown types at its end, which other programs ignore (RFC 9649,
// section 2.7.1.7). Ours are "f2tx": the key, a zero byte, the text.
#include "image/webp_text.hpp"

#include "base/check.hpp"
#include "image/exif.hpp"
#include "image/image_text.hpp"
#include "image/webp_chunk.hpp"

#include <optional>
#include <string_view>
#include <utility>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view kTextChunk = "f2tx";

// Nothing for a broken text.
std::optional<ImageText> parse_text(Bytes data) {
    const std::string_view content(reinterpret_cast<const char*>(data.data()), data.size());
    const size_t end = content.find('\0');
    if (end == std::string_view::npos) {
        return std::nullopt;
    }
    ImageText text{std::string(content.substr(0, end)), std::string(content.substr(end + 1))};
    return text_problem(text) ? std::nullopt : std::optional(std::move(text));
}

}  // namespace

std::vector<ImageText> read_webp_texts(Bytes bytes, const std::string& file) {
    std::vector<ImageText> texts;
    size_t left = kMaxTextBytes;
    const auto add = [&](std::optional<ImageText> text) {
        if (text && text->text.size() <= left) {
            left -= text->text.size();
            texts.push_back(std::move(*text));
        }
    };
    if (auto comment = exif_user_comment(webp_exif(bytes, file))) {
        add(ImageText{std::string(kCommentKey), std::move(*comment)});
    }
    WebpChunks chunks(bytes, file);
    while (const std::optional<WebpChunk> chunk = chunks.next()) {
        if (chunk->type == kTextChunk) {
            add(parse_text(chunk->data));
        }
    }
    return texts;
}

void insert_webp_texts(std::vector<std::byte>& webp, const std::vector<ImageText>& texts) {
    if (texts.empty()) {
        return;
    }
    std::optional<std::string> exif;
    std::vector<std::byte> text_chunks;
    for (const ImageText& text : texts) {
        const auto problem = text_problem(text);
        check(!problem, ErrorKind::bad_argument, problem.value_or(""));
        if (text.key == kCommentKey && !exif) {
            exif = exif_with_comment(text.text);
            if (exif) {
                continue;
            }
        }
        const std::string content = text.key + '\0' + text.text;
        append_webp_chunk(text_chunks, kTextChunk, std::as_bytes(std::span(content)));
    }
    check(text_chunks.size() + exif.value_or("").size() <= kMaxTextBytes, ErrorKind::bad_argument,
          "the texts for a WebP take more than ", kMaxTextBytes, " bytes");

    const std::string name = "the WebP";
    const std::optional<WebpChunk> picture = WebpChunks(webp, name).next();
    const auto size = picture ? webp_picture_size(*picture) : std::nullopt;
    check(size.has_value(), ErrorKind::internal, "a WebP for texts does not begin with a picture");
    std::vector<std::byte> chunks;
    const std::string extension = webp_extension(*size, exif ? kWebpExifFlag : '\0');
    append_webp_chunk(chunks, kWebpExtended, std::as_bytes(std::span(extension)));
    append_webp_chunk(chunks, picture->type, picture->data);
    if (exif) {
        append_webp_chunk(chunks, "EXIF", std::as_bytes(std::span(*exif)));
    }
    chunks.insert(chunks.end(), text_chunks.begin(), text_chunks.end());
    webp = webp_of_chunks(chunks);
}

}  // namespace flux2
