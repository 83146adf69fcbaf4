// PNG, JPEG and BMP through stb, with the checks it leaves to its callers.
#include "image/image_file.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "image/format_check.hpp"
#include "image/image.hpp"

// The implementation is local to this file: programs may bring their own stb.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb_image.h>
#include <stb_image_write.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdint>
#include <memory>
#include <vector>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

using Bytes = std::span<const std::byte>;

constexpr int kJpegQuality = 95;  // as the reference saves; stb halves the colour only up to 90

bool starts_with(Bytes bytes, std::initializer_list<uint8_t> signature) {
    return bytes.size() >= signature.size() &&
           std::equal(signature.begin(), signature.end(), bytes.begin(),
                      [](uint8_t a, std::byte b) { return std::byte{a} == b; });
}

bool is_png(Bytes bytes) {
    return starts_with(bytes, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'});
}

bool is_jpeg(Bytes bytes) {
    return starts_with(bytes, {0xff, 0xd8, 0xff});
}

struct FreePixels {
    void operator()(stbi_uc* pixels) const { stbi_image_free(pixels); }
};

void append(void* context, void* data, int size) {
    auto& out = *static_cast<std::vector<std::byte>*>(context);
    const auto* first = static_cast<const std::byte*>(data);
    out.insert(out.end(), first, first + size);
}

std::string lower_extension(const fs::path& path) {
    std::string extension = path.extension().string();
    for (char& c : extension) {
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return extension;
}

// The bytes of a file with this ending.
std::vector<std::byte> encode_image(const fs::path& path, const Image& image) {
    const std::string extension = lower_extension(path);
    const int width = image.width;
    const int height = image.height;
    std::vector<std::byte> out;
    int ok = 0;
    if (extension == ".png") {
        ok = stbi_write_png_to_func(append, &out, width, height, 3, image.rgb.data(), 3 * width);
    } else if (extension == ".jpg" || extension == ".jpeg") {
        ok = stbi_write_jpg_to_func(append, &out, width, height, 3, image.rgb.data(), kJpegQuality);
    } else if (extension == ".bmp") {
        ok = stbi_write_bmp_to_func(append, &out, width, height, 3, image.rgb.data());
    } else {
        fail(ErrorKind::bad_argument, path.string(),
             ": pictures are saved under names ending in .png, .jpg, .jpeg or .bmp");
    }
    check(ok != 0, ErrorKind::out_of_memory, path.string(), ": no memory to encode ", width, " x ",
          height, " pixels");
    return out;
}

}  // namespace

Image decode_image(Bytes bytes, const std::string& file) {
    check(is_png(bytes) || is_jpeg(bytes), ErrorKind::bad_file, file,
          ": is neither a PNG nor a JPEG; convert it to one of them");
    check(bytes.size() <= INT_MAX, ErrorKind::bad_file, file, ": is ", bytes.size(),
          " bytes long, at most ", INT_MAX, " are read");
    const auto* data = reinterpret_cast<const stbi_uc*>(bytes.data());
    const int size = static_cast<int>(bytes.size());

    if (is_png(bytes)) {
        check_png(bytes, file);
    } else {
        check_jpeg(bytes, file);
    }
    int width = 0;
    int height = 0;
    int channels = 0;
    const std::unique_ptr<stbi_uc, FreePixels> pixels(
        stbi_load_from_memory(data, size, &width, &height, &channels, 3));
    check(pixels != nullptr, ErrorKind::bad_file, file,
          ": the picture is broken: ", stbi_failure_reason());
    const size_t n = static_cast<size_t>(width) * static_cast<size_t>(height) * 3;
    return {width, height, {pixels.get(), pixels.get() + n}};
}

Image load_image(const fs::path& path) {
    const MappedFile file(path);
    return decode_image(file.bytes(), path.string());
}

void save_image(const fs::path& path, const Image& image) {
    check_image(image);
    const std::vector<std::byte> bytes = encode_image(path, image);
    AtomicFile file(path);
    file.write_at(0, bytes);
    file.commit();
}

}  // namespace flux2
