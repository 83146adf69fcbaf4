// The variables of huggingface_hub, and what they mean.
#include "downloads/hub_settings.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>

namespace flux2::hub {
namespace {

HubSettings read(const std::map<std::string, std::string>& variables) {
    return read_hub_settings([&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

}  // namespace

TEST_CASE("without variables the Hub is asked and files go to the shared cache") {
    const HubSettings settings = read({{"HOME", "/home/u"}});
    CHECK(settings.endpoint.text() == "https://huggingface.co");
    CHECK(settings.cache == "/home/u/.cache/huggingface/hub");
    CHECK(settings.token.empty());
    CHECK(settings.token_place == "/home/u/.cache/huggingface/token");
    CHECK(settings.offline_reason.empty());
}

TEST_CASE("the cache is chosen in the order of huggingface_hub") {
    std::map<std::string, std::string> variables = {{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "/x"}};
    CHECK(read(variables).cache == "/x/huggingface/hub");
    variables["HF_HOME"] = "~/hf";
    CHECK(read(variables).cache == "/home/u/hf/hub");
    variables["HUGGINGFACE_HUB_CACHE"] = "/old";
    CHECK(read(variables).cache == "/old");
    variables["HF_HUB_CACHE"] = "/new";
    CHECK(read(variables).cache == "/new");
}

TEST_CASE("the token comes from HF_TOKEN, else from its file") {
    const test::TemporaryFolder folder;
    test::write_file(folder / "token", "hf_file\n");
    std::map<std::string, std::string> variables = {{"HF_HOME", folder.path().string()}};
    CHECK(read(variables).token == "hf_file");
    CHECK(read(variables).token_place == (folder / "token").string());
    variables["HF_TOKEN"] = " hf_variable\n";
    CHECK(read(variables).token == "hf_variable");
    CHECK(read(variables).token_place == "HF_TOKEN");
    test::write_file(folder / "elsewhere", "hf_elsewhere");
    variables = {{"HF_TOKEN_PATH", (folder / "elsewhere").string()}};
    CHECK(read(variables).token == "hf_elsewhere");
}

TEST_CASE("endpoint, offline, proxies and certificates are read") {
    const HubSettings settings = read({{"HF_ENDPOINT", "http://mirror:8080/hub/"},
                                       {"HF_HUB_OFFLINE", "1"},
                                       {"https_proxy", "http://p:3128"},
                                       {"NO_PROXY", "localhost"},
                                       {"SSL_CERT_FILE", "/ca.pem"}});
    CHECK(settings.endpoint.text() == "http://mirror:8080/hub");
    CHECK(settings.offline_reason == "HF_HUB_OFFLINE is set");
    CHECK(settings.http.https_proxy == "http://p:3128");
    CHECK(settings.http.http_proxy.empty());
    CHECK(settings.http.no_proxy == "localhost");
    CHECK(settings.http.ca_file == "/ca.pem");
    CHECK(read({{"HF_HUB_OFFLINE", "0"}}).offline_reason.empty());
    const test::CaughtError error = test::error_of([] { read({{"HF_ENDPOINT", "mirror"}}); });
    CHECK(error.kind == ErrorKind::bad_argument);
    CHECK(error.mentions("HF_ENDPOINT is 'mirror'"));
}

TEST_CASE("addresses are taken apart and put together") {
    const Url url = parse_url("test", "HTTPS://user@Host:8443/a%20b?c=d#e");
    CHECK(url.origin() == "https://host:8443");
    CHECK(url.target == "/a%20b?c=d");
    CHECK(parse_url("test", "http://[::1]:81").text() == "http://[::1]:81/");
    CHECK(redirected(url, "/x").text() == "https://host:8443/x");
    CHECK(redirected(url, "//other/x").text() == "https://other/x");
    CHECK(redirected(url, "http://other:1/x?y").text() == "http://other:1/x?y");
    CHECK(encoded("a b/ü", true) == "a%20b/%C3%BC");
    CHECK(encoded("a/b", false) == "a%2Fb");
    for (const char* wrong :
         {"", "host", "ftp://host", "http://", "http://h:x", "http://h:99999"}) {
        CHECK(test::error_of([&] { parse_url("test", wrong); }).kind == ErrorKind::bad_argument);
    }
}

}  // namespace flux2::hub
