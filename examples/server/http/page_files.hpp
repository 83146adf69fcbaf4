// The files of the page in examples/server/web, which the build puts into the program.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace flux2::server {

struct PageFile {
    std::string_view name;    // "index.html", "editor/editor.js"
    std::string_view hash;    // of its bytes, in hexadecimal digits
    std::string_view plain;   // as it is
    std::string_view packed;  // by gzip
};

std::span<const PageFile> page_files();
// Changes with every file; a part of their addresses.
std::string_view page_version();

}  // namespace flux2::server
