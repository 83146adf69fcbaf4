// Feeds arbitrary bodies, JSON and forms, to the reading of requests: HTTP library, fields,
// uploads. An Error is expected, anything else is a finding.
#include "http/request_fields.hpp"
#include "http/uploads.hpp"

#include <httplib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace {

using namespace flux2;
using server::FieldKind;

// One field of each kind.
const server::FieldTable& table() {
    static const server::FieldTable fields = {
        {"prompt", FieldKind::text, "", 0, 1000, {}, true},
        {"n", FieldKind::integer, "", 1, 10},
        {"guidance", FieldKind::number, "", 0, 100},
        {"stream", FieldKind::boolean, ""},
        {"quality", FieldKind::word, "", 0, 0, {"low", "high"}},
        {"seed", FieldKind::seed, ""},
        {"sigmas", FieldKind::numbers, ""},
        {"roles", FieldKind::texts, ""},
        {"lora", FieldKind::objects, ""},
        {"image", FieldKind::pictures, "", 0, 16},
        {"mask", FieldKind::pictures, "", 0, 1}};
    return fields;
}

void read_request(const httplib::Request& request) {
    const auto fields = server::RequestFields::read(table(), request);
    fields.text("prompt");
    fields.integer("n");
    fields.number("guidance");
    fields.boolean("stream");
    fields.seed("seed");
    fields.numbers("sigmas");
    fields.texts("roles");
    const bool is_form = request.is_multipart_form_data();
    for (const char* name : {"image", "mask"}) {
        const auto files = is_form ? server::files_from_form(name, request.form, 4)
                                   : server::files_from_json(name, fields.value(name), 4);
        for (const std::string& file : files) {
            server::uploaded_image(name, file);
            server::uploaded_alpha_mask(name, file);
        }
    }
}

// A connection whose other end sends a text and reads nothing.
class TextStream final : public httplib::Stream {
  public:
    explicit TextStream(std::string text) : text_(std::move(text)) {}

    bool is_readable() const override { return at_ < text_.size(); }
    bool wait_readable() const override { return true; }
    bool wait_writable() const override { return true; }
    ssize_t read(char* to, size_t size) override {
        const size_t n = std::min(size, text_.size() - at_);
        std::memcpy(to, text_.data() + at_, n);
        at_ += n;
        return static_cast<ssize_t>(n);
    }
    ssize_t write(const char*, size_t size) override { return static_cast<ssize_t>(size); }
    void get_remote_ip_and_port(std::string&, int&) const override {}
    void get_local_ip_and_port(std::string&, int&) const override {}
    socket_t socket() const override { return INVALID_SOCKET; }
    time_t duration() const override { return 0; }

  private:
    std::string text_;
    size_t at_ = 0;
};

class OneRoute final : public httplib::Server {
  public:
    OneRoute() {
        set_payload_max_length(1 << 20);
        Post("/", [](const httplib::Request& request, httplib::Response&) {
            try {
                read_request(request);
            } catch (const Error& error) {
                server::openai_error(server::http_error(error));
            }
        });
        set_exception_handler([](const auto&, auto&, std::exception_ptr) { std::abort(); });
    }

    void serve(const std::string& text) {
        TextStream stream(text);
        bool closed = false;
        process_request(stream, "", 0, "", 0, true, closed, nullptr);
    }
};

std::string request_of(std::string_view type, std::string_view body) {
    return "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + std::string(type) +
           "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static OneRoute server;
    const std::string_view body(reinterpret_cast<const char*>(data), size);
    const bool is_form = body.starts_with("--");
    server.serve(
        request_of(is_form ? "multipart/form-data; boundary=b" : "application/json", body));
    server.serve(std::string(body));  // as a whole request
    return 0;
}
