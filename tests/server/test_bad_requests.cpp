// Requests that cannot work: each gets a 4xx with a sentence, and the server goes on.
#include "dialects/native_fields.hpp"
#include "dialects/openai_fields.hpp"
#include "http/base64.hpp"
#include "support/png_builder.hpp"
#include "support/running_server.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <thread>

using namespace flux2;
using namespace flux2::test;
using namespace std::chrono_literals;
using nlohmann::json;
using server::Field;
using server::FieldKind;

namespace {

struct BadRequest {
    std::string path;
    std::string body;
    std::string field = {};  // that the error must name
};

// Values that no field of this kind takes.
std::vector<json> wrong_values(const Field& field) {
    switch (field.kind) {
        case FieldKind::text:
            return {3, true, json::array(), json::object()};
        case FieldKind::integer:
            return {"much", field.least - 1, field.most + 1, field.most - 0.5, true, json::array()};
        case FieldKind::number:
            return {"much", field.least - 1, field.most + 1, 1e300, false, json::object()};
        case FieldKind::boolean:
            return {"yes", 1, json::array()};
        case FieldKind::word:
            return {"never", 3, true, json::array()};
        case FieldKind::seed:
            return {-2, 1.5, "seven", 1e30, json::array()};
        case FieldKind::pictures:
            return {3,
                    true,
                    "https://example.org/a.png",
                    "http://127.0.0.1/a.png",
                    "%%%",
                    "data:image/png,plain",
                    "data:image/png;base64,AAAA",
                    json::array({3}),
                    {{"file_id", "file-1"}},
                    {{"image_url", "file:///etc/passwd"}}};
        case FieldKind::numbers:
            return {3, "x", json::array({"x"})};
        case FieldKind::texts:
            return {3, "x", json::array({1})};
        case FieldKind::objects:
            return {3,
                    true,
                    json::array({3}),
                    json::array({json::object()}),
                    json::array({"no-such-lora"}),
                    json::array({"../../etc/passwd"})};
    }
    return {};
}

std::vector<BadRequest> wrong_fields(const std::string& path, const server::FieldTable& table,
                                     const json& right) {
    std::vector<BadRequest> requests;
    for (const Field& field : table) {
        for (const json& value : wrong_values(field)) {
            json body = right;
            body[field.name] = value;
            requests.push_back({path, body.dump(), field.name});
        }
    }
    return requests;
}

std::vector<BadRequest> broken_bodies(const std::string& path) {
    std::string deep(100000, '[');
    return {{path, ""},
            {path, "{"},
            {path, "{\"prompt\": \"a hou"},
            {path, "[]"},
            {path, "null"},
            {path, "\"a house\""},
            {path, "{\"prompt\": \"\xff\xfe\"}"},
            {path, "{\"prompt\": 1e999}"},
            {path, "{'prompt': 'a house'}"},
            {path, deep},
            {path, "{\"prompt\": " + deep + "}"},
            {path, "{\"prompt\": null}", "prompt"},
            {path, "{}", "prompt"},
            {path, json{{"prompt", std::string(40000, 'a')}}.dump(), "prompt"}};
}

void append(std::vector<BadRequest>& all, const std::vector<BadRequest>& more) {
    all.insert(all.end(), more.begin(), more.end());
}

std::vector<BadRequest> all_bad_requests() {
    const std::string picture = "data:image/png;base64," + server::to_base64(striped_png(64, 64));
    const json generation = {{"prompt", "a house"}};
    const json edit = {{"prompt", "a house"}, {"image", picture}};
    std::vector<BadRequest> all;
    for (const char* path :
         {"/v1/images/generations", "/v1/images/edits", "/api/v1/jobs", "/api/v1/plan"}) {
        append(all, broken_bodies(path));
    }
    append(all, wrong_fields("/v1/images/generations", server::generation_fields(), generation));
    append(all, wrong_fields("/v1/images/edits", server::edit_fields(), edit));
    append(all, wrong_fields("/api/v1/jobs", server::native_fields(), generation));
    for (const char* size : {"64", "x", "64x", "x64", "0x0", "-64x64", "65x64", "64x65", "16x16",
                             "99999x64", "64x64x64", "4112x64", "1e3x64", "64 x 64", "64X64"}) {
        all.push_back(
            {"/v1/images/generations", json{{"prompt", "a house"}, {"size", size}}.dump(), "size"});
    }
    for (const char* prompt : {"a <lora:nix:1> house", "a <lora:../x:1> house"}) {
        all.push_back({"/v1/images/generations", json{{"prompt", prompt}}.dump()});
    }
    const json transparent = {{"prompt", "a house"}, {"background", "transparent"}};
    all.push_back({"/v1/images/generations", transparent.dump(), "background"});
    for (const json& field :
         {json{{"mask", picture}}, json{{"strength", 0.5}}, json{{"outpaint_left", 64}}}) {
        json body = {{"prompt", "a house"}};
        body.update(field);
        all.push_back({"/api/v1/jobs", body.dump(), "image"});
    }
    return all;
}

void check_refused(const httplib::Result& result) {
    REQUIRE(result);
    CHECK(result->status >= 400);
    CHECK(result->status < 500);
    const json body = json::parse(result->body, nullptr, false);
    REQUIRE(body.is_object());
    CHECK(body["error"]["message"].get<std::string>().size() > 20);
    for (const char* key : {"message", "type", "param", "code"}) {
        CHECK(body["error"].contains(key));
    }
}

}  // namespace

TEST_CASE("every bad body gets a 4xx with a sentence that names the field") {
    TestServer server;
    httplib::Client client = server.client();
    const std::vector<BadRequest> requests = all_bad_requests();
    CHECK(requests.size() >= 200);
    for (const BadRequest& request : requests) {
        INFO(request.path << " " << request.body.substr(0, 200));
        const auto result = client.Post(request.path, request.body, "application/json");
        check_refused(result);
        if (!request.field.empty() && result) {
            const json error = json::parse(result->body)["error"];
            CHECK(error["param"] == request.field);
        }
    }
    CHECK(server.service().runner().n_queued() == 0);
    CHECK(server.service().runner().n_running() == 0);
    CHECK(server.get("/health").status == 200);
}

TEST_CASE("bad forms get a 4xx with a sentence") {
    TestServer server;
    const std::string picture = striped_png(64, 64);
    const std::string jpeg_start = "\xff\xd8\xff\xe0";
    // 16384 x 16384 pixels in a few bytes.
    const Bytes bomb = png(16384, 16384, 8, rgb, bytes({0, 0, 0}));
    const std::string bomb_text(reinterpret_cast<const char*>(bomb.data()), bomb.size());
    const std::vector<httplib::UploadFormDataItems> forms = {
        {{"prompt", "a house", "", ""}},
        {{"image", picture, "a.png", ""}},
        {{"image", "", "a.png", ""}, {"prompt", "a house", "", ""}},
        {{"image", "text", "a.png", ""}, {"prompt", "a house", "", ""}},
        {{"image", picture.substr(0, picture.size() / 2), "a.png", ""}, {"prompt", "x", "", ""}},
        {{"image", picture.substr(0, 30), "a.png", ""}, {"prompt", "x", "", ""}},
        {{"image", jpeg_start, "a.jpg", ""}, {"prompt", "x", "", ""}},
        {{"image", bomb_text, "a.png", ""}, {"prompt", "x", "", ""}},
        {{"image", picture, "a.png", ""}, {"prompt", "x", "", ""}, {"n", "0", "", ""}},
        {{"image", picture, "a.png", ""}, {"prompt", "x", "", ""}, {"n", "1.5", "", ""}},
        {{"image", picture, "a.png", ""}, {"prompt", "x", "", ""}, {"n", "", "", ""}},
        {{"image", picture, "a.png", ""}, {"prompt", "x", "", ""}, {"stream", "maybe", "", ""}},
        {{"image", picture, "a.png", ""}, {"prompt", "x", "", ""}, {"mask", "x", "m.png", ""}},
        httplib::UploadFormDataItems(17, {"image[]", picture, "a.png", ""}),
        httplib::UploadFormDataItems(300, {"other", "x", "", ""})};
    for (size_t i = 0; i < forms.size(); ++i) {
        INFO("form " << i);
        check_refused(server.client().Post("/v1/images/edits", forms[i]));
    }
    for (const char* type : {"multipart/form-data",
                             "multipart/form-data; boundary=", "multipart/form-data; boundary=x"}) {
        INFO(type);
        check_refused(server.client().Post("/v1/images/edits", "--y\r\n\r\nnothing", type));
    }
    CHECK(server.get("/health").status == 200);
}

TEST_CASE("unknown routes, other methods and queries that make no sense are refused") {
    TestServer server;
    httplib::Client client = server.client();
    for (const char* path :
         {"/nothing", "/v1/images/variations", "/images/x.png", "/images/..%2f..%2fetc%2fpasswd",
          "/api/v1/jobs/none", "/api/v1/jobs/none/events", "/api/v1/history/none",
          "/api/v1/history/..", "/api/v1/history?limit=0", "/api/v1/history?limit=x",
          "/api/v1/jobs?limit=1e9", "/v1/images/generations"}) {
        INFO(path);
        check_refused(client.Get(path));
    }
    check_refused(client.Put("/v1/models", "{}", "application/json"));
    check_refused(client.Patch("/v1/models", "{}", "application/json"));
    check_refused(client.Delete("/v1/models"));
    check_refused(client.Post("/health"));
    httplib::Request odd;
    odd.method = "BREW";
    odd.path = "/v1/models";
    check_refused(client.send(odd));
    check_refused(client.Get("/" + std::string(10000, 'a')));
}

TEST_CASE("a body that is too large is refused before it is read") {
    server::ServerOptions options = test_options();
    options.max_body_bytes = 10000;
    TestServer server(options);
    const auto result =
        server.client().Post("/v1/images/generations", std::string(20000, ' '), "application/json");
    check_refused(result);
    CHECK(result->status == 413);
    const auto form = server.client().Post("/v1/images/generations", std::string(9000, ' '),
                                           "application/x-www-form-urlencoded");
    check_refused(form);
    CHECK(form->body.find("application/json") != std::string::npos);
}

TEST_CASE("a sender that stops in the middle does not hold the server") {
    server::ServerOptions options = test_options();
    options.timeout = 1s;
    TestServer server(options);
    httplib::Client client = server.client();
    const auto result = client.Post(
        "/v1/images/generations", 1000,
        [](size_t offset, size_t, httplib::DataSink& sink) {
            if (offset == 0) {
                return sink.write("{", 1);
            }
            std::this_thread::sleep_for(1500ms);
            return sink.write(" ", 1);
        },
        "application/json");
    if (result) {
        check_refused(result);
    }
    CHECK(server.get("/health").status == 200);
}
