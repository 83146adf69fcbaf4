// Compressed texts are inflated by stb, as pixels are, into a buffer of fixed size.
#include "image/png_text.hpp"

#include "base/check.hpp"
#include "base/utf8.hpp"
#include "image/codec.hpp"
#include "image/image_text.hpp"
#include "image/png_chunk.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace flux2 {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kHeaderEnd = 8 + kPngChunkOverhead + 13;  // signature, IHDR

std::string utf8_from_latin1(std::string_view text) {
    std::string result;
    for (const char c : text) {
        const auto code = static_cast<unsigned char>(c);
        if (code < 0x80) {
            result += c;
        } else {
            result += static_cast<char>(0xc0 | code >> 6);
            result += static_cast<char>(0x80 | (code & 0x3f));
        }
    }
    return result;
}

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

class TextReader {
  public:
    explicit TextReader(const std::string& file) : file_(file) {}

    void read(const PngChunk& chunk) {
        if (chunk.type != "tEXt" && chunk.type != "zTXt" && chunk.type != "iTXt") {
            return;
        }
        spend(kPngChunkOverhead + chunk.data.size());
        require(chunk.intact(), "its checksum is wrong");
        std::string_view rest(reinterpret_cast<const char*>(chunk.data.data()), chunk.data.size());
        const std::string_view key = take_until_zero(rest);
        require(!key.empty() && key.size() <= kMaxTextKey, "its key does not have 1 to 79 letters");
        std::string text = chunk.type == "tEXt"   ? utf8_from_latin1(rest)
                           : chunk.type == "zTXt" ? read_compressed(rest)
                                                  : read_international(rest);
        texts_.push_back({utf8_from_latin1(key), std::move(text)});
    }

    std::vector<ImageText> take() { return std::move(texts_); }

  private:
    // After the key: the method, the text.
    std::string read_compressed(std::string_view rest) {
        const char method = take_byte(rest);
        return utf8_from_latin1(inflated(method, rest));
    }

    // After the key: whether it is compressed, the method, the language, the key in that language,
    // the text.
    std::string read_international(std::string_view rest) {
        const char compressed = take_byte(rest);
        require(compressed == 0 || compressed == 1, "its compression is unknown");
        const char method = take_byte(rest);
        take_until_zero(rest);
        take_until_zero(rest);
        std::string text = compressed == 1 ? inflated(method, rest) : std::string(rest);
        require(is_utf8(text), "it is not UTF-8");
        return text;
    }

    std::string inflated(char method, std::string_view data) {
        require(method == 0, "its compression is unknown");
        std::optional<std::string> text = inflate(std::as_bytes(std::span(data)), left_);
        require(text.has_value(), "its compressed data are broken or too long");
        spend(text->size());
        return std::move(*text);
    }

    char take_byte(std::string_view& rest) const {
        require(!rest.empty(), "it ends too early");
        const char byte = rest.front();
        rest.remove_prefix(1);
        return byte;
    }

    std::string_view take_until_zero(std::string_view& rest) const {
        const size_t end = rest.find('\0');
        require(end != std::string_view::npos, "it ends too early");
        const std::string_view result = rest.substr(0, end);
        rest.remove_prefix(end + 1);
        return result;
    }

    void spend(size_t n_bytes) {
        check(n_bytes <= left_, ErrorKind::bad_file, file_, ": the PNG has more than ",
              kMaxTextBytes, " bytes of text, which is not read");
        left_ -= n_bytes;
    }

    void require(bool condition, const char* otherwise) const {
        check(condition, ErrorKind::bad_file, file_, ": text ", texts_.size() + 1,
              " in the PNG is broken: ", otherwise);
    }

    const std::string& file_;
    size_t left_ = kMaxTextBytes;
    std::vector<ImageText> texts_;
};

}  // namespace

std::vector<ImageText> read_png_texts(Bytes bytes, const std::string& file) {
    PngChunks chunks(bytes, file);
    TextReader reader(file);
    while (const std::optional<PngChunk> chunk = chunks.next()) {
        reader.read(*chunk);
    }
    return reader.take();
}

void insert_png_texts(std::vector<std::byte>& png, const std::vector<ImageText>& texts) {
    std::vector<std::byte> chunks;
    for (const ImageText& text : texts) {
        const auto problem = text_problem(text);
        check(!problem, ErrorKind::bad_argument, problem.value_or(""));
        if (is_ascii(text.text)) {
            append_png_chunk(chunks, "tEXt", text.key + '\0' + text.text);
        } else {
            // After the key: not compressed, method 0, no language, no translated key.
            append_png_chunk(chunks, "iTXt", text.key + std::string(5, '\0') + text.text);
        }
        check(chunks.size() <= kMaxTextBytes, ErrorKind::bad_argument,
              "the texts for a PNG take more than ", kMaxTextBytes, " bytes");
    }
    png.insert(png.begin() + kHeaderEnd, chunks.begin(), chunks.end());
}

}  // namespace flux2
