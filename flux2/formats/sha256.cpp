#include "formats/sha256.hpp"

#include "base/check.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>

namespace flux2 {
namespace {

// `done` gets each part once it is no longer needed.
template <typename Done>
std::string hash_in_parts(std::span<const std::byte> bytes, const std::atomic<bool>& cancel,
                          const Done& done) {
    constexpr size_t kStep = 8 << 20;
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                          EVP_MD_CTX_free);
    bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
    while (good && !bytes.empty()) {
        check(!cancel, ErrorKind::cancelled, "cancelled");
        const auto step = bytes.first(std::min(kStep, bytes.size()));
        good = EVP_DigestUpdate(context.get(), step.data(), step.size()) == 1;
        done(step);
        bytes = bytes.subspan(step.size());
    }
    std::array<unsigned char, 32> digest{};
    good = good && EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1;
    check(good, ErrorKind::internal, "OpenSSL could not compute a SHA-256");

    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : digest) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

// Else the whole file would stay in this process's memory, as the system counts it.
std::string hash_file(const MappedFile& file, const std::atomic<bool>& cancel) {
    return hash_in_parts(file.bytes(), cancel, MappedFile::forget);
}

}  // namespace

std::string sha256(std::span<const std::byte> bytes, const std::atomic<bool>& cancel) {
    return hash_in_parts(bytes, cancel, [](std::span<const std::byte>) {});
}

std::string sha256(const std::vector<MappedFile>& files, const std::atomic<bool>& cancel) {
    if (files.size() == 1) {
        return hash_file(files.front(), cancel);
    }
    std::string lines;
    for (const MappedFile& file : files) {
        lines += hash_file(file, cancel) + "  " + file.path().filename().string() + "\n";
    }
    return sha256(std::as_bytes(std::span(lines)), cancel);
}

}  // namespace flux2
