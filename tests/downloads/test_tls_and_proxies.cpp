// Encrypted connections and proxies.
#include "downloads/fetch_file.hpp"
#include "support/certificates.hpp"
#include "support/hub_imitation.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>

namespace flux2::hub {
namespace {

using test::TestHub;

void fetch(const HubSettings& settings) {
    HubClient client(settings);
    fetch_file(client, {"owner/model", "weights.bin"}, [](const FileProgress&) {});
}

}  // namespace

TEST_CASE("a server with a certificate of a known authority is used, any other is refused") {
    const test::TemporaryFolder folder;
    const test::Certificates certificates = test::make_certificates(folder.path(), "127.0.0.1");
    TestHub hub(certificates.certificate, certificates.key);
    hub.add("owner/model", "weights.bin", test::random_bytes(300'000));
    HubSettings settings = hub.settings(folder / "cache");
    settings.token = "hf_secret";

    // The system does not know the authority.
    test::CaughtError error = test::error_of([&] { fetch(settings); });
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.mentions("the certificate of 127.0.0.1 is not trusted"));
    CHECK(error.mentions("SSL_CERT_FILE"));
    // The request, and with it the token, was never sent.
    CHECK(hub.requests().empty());

    settings.http.ca_file = certificates.authority;
    // Also when it falls silent once.
    settings.http.read_timeout = std::chrono::milliseconds(250);
    hub.stalls = 1;
    hub.stall_after = 100'000;
    fetch(settings);
    CHECK(hub.stalls == 0);
    CHECK(hub.bytes_sent() >= 300'000);
    CHECK(hub.requests().back().range.starts_with("bytes=1"));
    CHECK(hub.requests().back().cipher == "TLS_AES_128_GCM_SHA256");
}

TEST_CASE("a certificate for another address is refused") {
    const test::TemporaryFolder folder;
    const test::Certificates certificates = test::make_certificates(folder.path(), "127.0.0.2");
    TestHub hub(certificates.certificate, certificates.key);
    hub.add("owner/model", "weights.bin", "bytes");
    HubSettings settings = hub.settings(folder / "cache");
    settings.http.ca_file = certificates.authority;
    CHECK(test::error_of([&] {
              fetch(settings);
          }).mentions("the certificate of 127.0.0.1 is not trusted"));
    CHECK(hub.requests().empty());
}

TEST_CASE("requests go through a proxy, except to hosts that are left out") {
    const test::TemporaryFolder folder;
    TestHub hub;
    hub.add("owner/model", "weights.bin", "bytes");
    httplib::Server proxy;
    std::atomic<int> n_asked = 0;
    proxy.set_pre_routing_handler([&](const httplib::Request&, httplib::Response& response) {
        ++n_asked;
        response.status = 418;
        return httplib::Server::HandlerResponse::Handled;
    });
    const int port = proxy.bind_to_any_port("127.0.0.1");
    std::thread thread([&] { proxy.listen_after_bind(); });
    proxy.wait_until_ready();

    HubSettings settings = hub.settings(folder.path());
    settings.http.http_proxy = "http://127.0.0.1:" + std::to_string(port);
    CHECK(test::error_of([&] { fetch(settings); }).mentions("answers 418"));
    CHECK(n_asked == 1);
    CHECK(hub.requests().empty());

    settings.http.no_proxy = "example.org, 127.0.0.1";
    fetch(settings);
    CHECK(n_asked == 1);

    settings.http.no_proxy = "";
    settings.http.http_proxy = "nowhere:x";
    CHECK(test::error_of([&] {
              HubClient client(settings);
              client.look_up({"owner/model", "other.bin"});
          }).mentions("the proxy is"));
    proxy.stop();
    thread.join();
}

}  // namespace flux2::hub
