// Certificates for tests, made when they run.
#pragma once

#include <filesystem>
#include <string>

namespace flux2::test {

// A certificate authority and a server's certificate by it, as PEM files in a folder.
struct Certificates {
    std::filesystem::path authority, certificate, key;
};

// The server's is for this IP address.
Certificates make_certificates(const std::filesystem::path& folder, const std::string& address);

}  // namespace flux2::test
