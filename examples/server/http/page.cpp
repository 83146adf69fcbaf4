#include "http/page.hpp"

#include <string>

namespace flux2::server {
namespace {

constexpr std::string_view kIndex = "index.html";
constexpr std::string_view kFolder = "/web/";

// Only what this server sends is run and shown. Pictures are also blobs, which scripts make of
// answers that need a key.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

// "/web/0123456789ab/editor/editor.js" -> "editor/editor.js"; empty for another path.
std::string_view name_in_folder(std::string_view path) {
    if (!path.starts_with(kFolder)) {
        return {};
    }
    const size_t slash = path.find('/', kFolder.size());
    return slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
}

bool accepts(const httplib::Request& request, const char* header, const char* word) {
    return request.get_header_value(header).find(word) != std::string::npos;
}

const char* type_of(std::string_view name) {
    return name.ends_with(".html")  ? "text/html; charset=utf-8"
           : name.ends_with(".css") ? "text/css; charset=utf-8"
           : name.ends_with(".svg") ? "image/svg+xml"
                                    : "text/javascript; charset=utf-8";
}

// Whether the address changes with the file, so that it need not be asked for again.
bool has_lasting_address(const httplib::Request& request) {
    return request.path.starts_with(std::string(kFolder) + std::string(page_version()) + "/");
}

}  // namespace

const PageFile* find_page_file(const httplib::Request& request) {
    if (request.method != "GET" && request.method != "HEAD") {
        return nullptr;
    }
    const bool is_index = request.path == "/" && accepts(request, "Accept", "text/html");
    const std::string_view name = is_index ? kIndex : name_in_folder(request.path);
    for (const PageFile& file : page_files()) {
        if (file.name == name) {
            return &file;
        }
    }
    return nullptr;
}

void answer_page_file(const PageFile& file, const httplib::Request& request,
                      httplib::Response& response) {
    const bool is_packed = accepts(request, "Accept-Encoding", "gzip");
    const std::string tag = "\"" + std::string(file.hash) + (is_packed ? "-gzip" : "") + "\"";
    response.set_header("ETag", tag);
    response.set_header("Vary", "Accept, Accept-Encoding");
    response.set_header("Cache-Control", has_lasting_address(request)
                                             ? "public, max-age=31536000, immutable"
                                             : "no-cache");
    response.set_header("Content-Security-Policy", kPolicy);
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("Referrer-Policy", "no-referrer");
    if (accepts(request, "If-None-Match", tag.c_str())) {
        response.status = 304;
        return;
    }
    if (is_packed) {
        response.set_header("Content-Encoding", "gzip");
    }
    const std::string_view bytes = is_packed ? file.packed : file.plain;
    response.status = 200;
    response.set_content(bytes.data(), bytes.size(), type_of(file.name));
}

}  // namespace flux2::server
