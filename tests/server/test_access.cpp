// Who may use the server, and what happens when it is busy or stops.
#include "dialects/all_routes.hpp"
#include "http/access.hpp"
#include "http/connection_threads.hpp"
#include "support/running_server.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

using namespace flux2;
using namespace flux2::test;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

constexpr const char* kSmall = R"({"prompt": "a house", "size": "64x64", "steps": 1})";
constexpr const char* kLong = R"({"prompt": "a house", "width": 256, "height": 256, "steps": 900})";

int status_of(const httplib::Result& result) {
    REQUIRE(result);
    return result->status;
}

}  // namespace

TEST_CASE("texts are compared as they are") {
    CHECK(server::equal_in_constant_time("key", "key"));
    CHECK_FALSE(server::equal_in_constant_time("key", "kex"));
    CHECK_FALSE(server::equal_in_constant_time("key", "keykey"));
    CHECK_FALSE(server::equal_in_constant_time("keykey", "key"));
    CHECK_FALSE(server::equal_in_constant_time("", "key"));
    CHECK_FALSE(server::equal_in_constant_time("key", ""));
}

TEST_CASE("with keys only requests that send one are answered, and the health of the server") {
    server::ServerOptions options = test_options();
    options.api_keys = {"first", "second"};
    TestServer server(options);
    const auto status = [&](const httplib::Headers& headers) {
        return status_of(server.client().Get("/v1/models", headers));
    };
    CHECK(status({{"Authorization", "Bearer first"}}) == 200);
    CHECK(status({{"Authorization", "Bearer second"}}) == 200);
    CHECK(status({{"X-Api-Key", "second"}}) == 200);
    CHECK(status({{"Authorization", "Basic dXNlcjpmaXJzdA=="}}) == 200);  // user:first
    CHECK(status({}) == 401);
    CHECK(status({{"Authorization", "Bearer third"}}) == 401);
    CHECK(status({{"Authorization", ""}}) == 401);
    CHECK(status_of(server.client().Get("/health")) == 200);
    const auto refused = server.get("/v1/models");
    CHECK(refused.body["error"]["code"] == "invalid_api_key");
    CHECK(refused.headers.find("x-should-retry")->second == "false");
}

TEST_CASE("a Host that is no address and no known name is refused") {
    server::ServerOptions options = test_options();
    options.allowed_hosts = {"pictures.example.org"};
    TestServer server(options);
    const auto status = [&](const char* host) {
        return status_of(server.client().Get("/health", httplib::Headers{{"Host", host}}));
    };
    CHECK(status("localhost:8080") == 200);
    CHECK(status("192.168.1.9:8080") == 200);
    CHECK(status("[::1]:8080") == 200);
    CHECK(status("pictures.example.org") == 200);
    CHECK(status("evil.example.org:8080") == 403);
    CHECK(status("127.0.0.1.evil.example.org") == 403);
}

TEST_CASE("a connection does not wait behind others that arrive with it") {
    // Three take their time; the fourth must be served meanwhile, however they arrive.
    for (int round = 0; round < 50; ++round) {
        server::ConnectionThreads threads(8, 8);
        std::atomic<int> n_waiting = 0;
        std::atomic<bool> release = false, served = false;
        const auto slow = [&] {
            ++n_waiting;
            while (!release) {
                std::this_thread::sleep_for(100us);
            }
        };
        threads.enqueue([] {});  // leaves an idle thread
        for (int i = 0; i < 3; ++i) {
            threads.enqueue(slow);
        }
        threads.enqueue([&] { served = true; });
        for (int i = 0; i < 20000 && !served; ++i) {
            std::this_thread::sleep_for(100us);
        }
        CHECK(served);
        release = true;
        threads.shutdown();
        CHECK(n_waiting == 3);
    }
}

TEST_CASE("a web page of another origin is refused unless it was allowed") {
    server::ServerOptions options = test_options();
    options.cors_origins = {"https://good.example.org"};
    TestServer server(options);
    const auto get = [&](const std::string& origin) {
        return server.client().Get("/v1/models", httplib::Headers{{"Origin", origin}});
    };
    CHECK(status_of(get("https://evil.example.org")) == 403);
    CHECK(status_of(get("null")) == 403);
    CHECK(status_of(get("http://127.0.0.1:" + std::to_string(server.port()))) == 200);
    const auto good = get("https://good.example.org");
    CHECK(status_of(good) == 200);
    CHECK(good->get_header_value("Access-Control-Allow-Origin") == "https://good.example.org");
    const auto preflight =
        server.client().Options("/v1/images/generations", {{"Origin", "https://good.example.org"}});
    CHECK(status_of(preflight) == 204);
    CHECK(preflight->get_header_value("Access-Control-Allow-Headers").find("authorization") !=
          std::string::npos);
}

TEST_CASE("clients that ask for the options of a route get them without an origin") {
    TestServer server;
    const auto options = server.client().Options("/v1/images/generations");
    CHECK(status_of(options) == 204);
    CHECK(options->get_header_value("Allow") == "POST");
}

TEST_CASE("a full queue answers 429 and when to try again") {
    server::ServerOptions options = test_options();
    options.queue_size = 1;
    TestServer server(options);
    CHECK(server.post("/api/v1/jobs", json::parse(kLong)).status == 202);
    while (server.service().runner().n_running() == 0) {
        std::this_thread::sleep_for(1ms);
    }
    CHECK(server.post("/api/v1/jobs", json::parse(kLong)).status == 202);
    const auto full = server.post("/v1/images/generations", json::parse(kSmall));
    CHECK(full.status == 429);
    CHECK(full.body["error"]["code"] == "queue_full");
    const int seconds = std::stoi(full.headers.find("retry-after")->second);
    CHECK(seconds >= 1);
    CHECK(seconds <= 120);
    CHECK(full.headers.find("x-should-retry")->second == "true");
    server.service().runner().cancel_all();
    CHECK(server.service().runner().wait_idle(10s));
    CHECK(server.post("/v1/images/generations", json::parse(kSmall)).status == 200);
}

TEST_CASE("a server that stops finishes what waits and takes nothing new") {
    TestServer server;
    const std::string id =
        server.post("/api/v1/jobs", {{"prompt", "a house"}, {"width", 64}, {"height", 64}})
            .body["id"];
    server.service().runner().stop_accepting();
    CHECK(server.post("/v1/images/generations", json::parse(kSmall)).status == 503);
    CHECK(server.get("/health").status == 503);
    CHECK(server.service().runner().wait_idle(30s));
    CHECK(server.get("/api/v1/jobs/" + id).body["state"] == "done");
}

TEST_CASE("an idle model is unloaded, and loaded again by the next request") {
    server::ServerOptions options = test_options();
    options.idle_time = 1s;
    TestServer server(options);
    CHECK(server.post("/v1/images/generations", json::parse(kSmall)).status == 200);
    CHECK(server.service().runner().devices()[0].model == "tiny");
    for (int i = 0; i < 100 && !server.service().runner().devices()[0].model.empty(); ++i) {
        std::this_thread::sleep_for(50ms);
    }
    CHECK(server.service().runner().devices()[0].model.empty());
    CHECK(server.post("/v1/images/generations", json::parse(kSmall)).status == 200);
}

TEST_CASE("a UNIX socket serves like a port") {
    const TemporaryFolder folder;
    server::ServerOptions options = test_options();
    options.host = (folder / "flux2.sock").string();
    TestServer server(options);
    httplib::Client client(options.host);
    client.set_address_family(AF_UNIX);
    CHECK(status_of(client.Get("/health")) == 200);
}

TEST_CASE("metrics count jobs, pictures and refusals") {
    server::ServerOptions options = test_options();
    options.metrics = true;
    TestServer server(options);
    CHECK(server.post("/v1/images/generations", json::parse(kSmall)).status == 200);
    CHECK(server.post("/v1/images/generations", {{"prompt", 3}}).status == 400);
    const auto metrics = server.client().Get("/metrics");
    REQUIRE(metrics);
    for (const char* line :
         {"flux2_pictures_total 1\n", "flux2_jobs_total{state=\"done\"} 1\n",
          "flux2_refusals_total{reason=\"invalid_value\"} 1\n", "flux2_queue_length 0\n",
          "flux2_http_requests_total{route=\"/v1/images/generations\",status=\"400\"} 1\n"}) {
        INFO(std::string(line));
        CHECK(metrics->body.find(line) != std::string::npos);
    }
}

TEST_CASE("a server without --metrics has no such route") {
    TestServer server;
    CHECK(server.get("/metrics").status == 404);
}

TEST_CASE("while its models are opened the server answers 503 and when to try again") {
    server::Service service(test_options());
    server::HttpServer http(service);
    server::add_all_routes(http.routes(), service);
    http.listen();
    httplib::Client client("127.0.0.1", http.port());
    for (const char* path : {"/health", "/v1/models"}) {
        const auto loading = client.Get(path);
        CHECK(status_of(loading) == 503);
        CHECK(loading->get_header_value("Retry-After") == "1");
        CHECK(json::parse(loading->body)["error"]["type"] == "unavailable_error");
    }
    service.start();
    CHECK(status_of(client.Get("/health")) == 200);
}
