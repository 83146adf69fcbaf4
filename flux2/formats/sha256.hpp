// SHA-256 of model files, by OpenSSL. A library of its own, so that flux2 itself does not need it.
#pragma once

#include "base/file.hpp"

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// In lower-case hexadecimal. Throws cancelled when the flag is raised.
std::string sha256(std::span<const std::byte> bytes, const std::atomic<bool>& cancel);

// Pages that were read are forgotten (MappedFile::forget).
// The hash of one file as sha256sum prints it. For several files the hash of the text that
// sha256sum prints for them: a line "HASH  NAME" each, in the order given.
std::string sha256(const std::vector<MappedFile>& files, const std::atomic<bool>& cancel);

}  // namespace flux2
