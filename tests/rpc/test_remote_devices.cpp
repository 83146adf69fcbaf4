// Devices of other machines: flux2-rpc-server processes on this one.
#include <flux2/flux2.hpp>
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <ggml-rpc.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

namespace flux2 {
namespace {

using test::run_program;
using test::TemporaryFolder;

// A socket that listens on any free port of this machine.
class Listener {
  public:
    Listener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address);
        REQUIRE(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(::listen(socket_, 1) == 0);
        REQUIRE(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
        port_ = ntohs(address.sin_port);
    }
    ~Listener() { ::close(socket_); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    int port() const { return port_; }
    int accept() const { return ::accept(socket_, nullptr, nullptr); }

  private:
    int socket_;
    int port_ = 0;
};

int free_port() {
    return Listener().port();
}

std::string address_of(int port) {
    return "127.0.0.1:" + std::to_string(port);
}

// A flux2-rpc-server that ends with this object.
class RemoteServer {
  public:
    RemoteServer() : RemoteServer(free_port()) {}
    explicit RemoteServer(int port) : port_(port) {
        const auto started = run_program("sh -c '" + std::string(FLUX2_RPC_SERVER_PROGRAM) +
                                         " --no-cache -t 1 --port " + std::to_string(port_) +
                                         " > /dev/null 2>&1 & echo $!'");
        pid_ = started.out.substr(0, started.out.find('\n'));
        REQUIRE(!pid_.empty());
        for (int i = 0; i < 100; ++i) {
            if (run_program(test::flux2_path() + " devices --rpc " + address()).exit_code == 0) {
                return;
            }
            ::usleep(50'000);
        }
        FAIL("no server on " << address());
    }
    ~RemoteServer() { kill(); }
    RemoteServer(const RemoteServer&) = delete;
    RemoteServer& operator=(const RemoteServer&) = delete;

    std::string address() const { return address_of(port_); }
    int port() const { return port_; }
    const std::string& pid() const { return pid_; }
    void kill() {
        if (!pid_.empty()) {
            run_program("kill -9 " + pid_);
            pid_.clear();
        }
    }

  private:
    int port_;
    std::string pid_;
};

std::string draw(const std::string& options) {
    return test::flux2_path() + " -m " + FLUX2_TINY_MODEL +
           " -p 'a red circle' -s 1 -W 128 -H 128 --no-cache --device CPU --type F32 " + options;
}

// Of 255: matrices in F32, so that ggml's operations there and ours here differ by the order of
// sums and by ggml's exponential function only.
constexpr int kMostOfF32 = 2;

struct Difference {
    int largest = 0;
    double mean = 0;
};

Difference difference(const Image& a, const Image& b) {
    REQUIRE(a.rgb.size() == b.rgb.size());
    REQUIRE(!a.rgb.empty());
    Difference found;
    for (size_t i = 0; i < a.rgb.size(); ++i) {
        const int d = std::abs(int{a.rgb[i]} - int{b.rgb[i]});
        found.largest = std::max(found.largest, d);
        found.mean += d / static_cast<double>(a.rgb.size());
    }
    return found;
}

TEST_CASE("two servers with half of the blocks each draw the picture of this machine") {
    const RemoteServer first, second;
    const TemporaryFolder folder;
    const std::string local = (folder / "local.png").string();
    const std::string shared = (folder / "shared.png").string();
    REQUIRE(run_program(draw("-o " + local)).exit_code == 0);
    const std::string servers = " --rpc " + first.address() + "," + second.address();
    const auto drawn =
        run_program(draw("-o " + shared + servers + " --device-diffusion RPC0,RPC1 --split 1,1"));
    CHECK(drawn.exit_code == 0);
    const Difference found = difference(load_image(local), load_image(shared));
    CHECK(found.largest <= kMostOfF32);
    CHECK(found.mean <= 0.02);

    const auto planned = run_program(test::flux2_path() + " plan -m " + FLUX2_TINY_MODEL +
                                     " -p x -W 128 -H 128 --no-cache --where" + servers +
                                     " --device CPU --device-diffusion RPC0,RPC1 --split 1,1");
    CHECK(planned.exit_code == 0);
    CHECK(planned.out.find("RPC0     double 0-1;") != std::string::npos);
    CHECK(planned.out.find("RPC1     single 0-3;") != std::string::npos);
}

TEST_CASE("a server that is lost in the middle ends the picture, and the next one is drawn") {
    RemoteServer kept;
    RemoteServer lost;
    const TemporaryFolder folder;
    const std::string picture = (folder / "x.png").string();
    const std::string log = (folder / "log").string();
    const std::string options = "-o " + picture + " --rpc " + kept.address() + "," +
                                lost.address() + " --device-diffusion RPC0,RPC1 --split 1,1 ";
    // A subshell, so that the log has what the program tells; the watch ends without it.
    const auto result = run_program("( (for i in $(seq 600); do grep -q 'step 2/' " + log +
                                    " && break; sleep 0.05; done; " + "kill -9 " + lost.pid() +
                                    ") & " + draw(options + "--steps 500 2> " + log) + " )");
    CHECK(result.exit_code == 5);
    const auto bytes = test::read_file(log);
    const std::string told(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    CHECK(told.find("the server " + lost.address() + " (RPC1) was lost") != std::string::npos);
    CHECK(!std::filesystem::exists(picture));

    const auto refused = run_program(draw(options));
    CHECK(refused.exit_code == 5);
    CHECK(refused.err.find("cannot be reached") != std::string::npos);
    CHECK(!std::filesystem::exists(picture));

    const RemoteServer again(lost.port());
    CHECK(run_program(draw(options)).exit_code == 0);
    CHECK(std::filesystem::exists(picture));
}

TEST_CASE("a pipeline that loses its server goes on with this machine") {
    RemoteServer server;
    const std::vector<std::string> names = add_servers(server.address());
    REQUIRE(names.size() == 1);
    LoadOptions options;
    options.device = "CPU";
    options.transformer.device = names.front();
    options.type = "F32";
    Pipeline pipeline = Pipeline::load(find_model(FLUX2_TINY_MODEL).files, options);
    Request request;
    request.prompt = "a red circle";
    request.width = request.height = 128;
    request.seed = 1;
    const Image remote = pipeline.generate(request).image;
    CHECK(pipeline.device() == names.front());
    const auto error = test::error_of([&] {
        pipeline.generate(request, [&](const Step& step) {
            if (step.stage == Stage::denoise && step.step == 1) {
                server.kill();
            }
            return true;
        });
    });
    CHECK(error.kind == ErrorKind::backend);
    CHECK(error.mentions("was lost"));
    const Image local = pipeline.generate(request).image;
    CHECK(pipeline.device() == "CPU");
    CHECK(difference(remote, local).largest <= kMostOfF32);
}

// Answers one greeting with this version and length of names.
std::string answer_to_greeting(const std::array<uint8_t, 4>& version_and_length) {
    const Listener listener;
    std::thread server([&] {
        const int client = listener.accept();
        std::array<uint8_t, 33> greeting;  // command, size, abilities
        const bool read = ::recv(client, greeting.data(), greeting.size(), MSG_WAITALL) == 33;
        std::array<uint8_t, 36> answer = {28};  // size in eight bytes, then the four and abilities
        std::copy(version_and_length.begin(), version_and_length.end(), answer.begin() + 8);
        if (read) {
            ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
        }
        ::close(client);
    });
    const auto error = test::error_of([&] { add_servers(address_of(listener.port())); });
    server.join();
    CHECK(error.kind == ErrorKind::backend);
    return error.message;
}

TEST_CASE("servers that do not match are refused before anything is loaded") {
    constexpr uint8_t kMajor = RPC_PROTO_MAJOR_VERSION;
    constexpr uint8_t kMinor = RPC_PROTO_MINOR_VERSION;
    constexpr uint8_t kPatch = RPC_PROTO_PATCH_VERSION;
    const auto tells = [](const std::string& message, const char* what) {
        INFO(message);
        CHECK(message.find(what) != std::string::npos);
    };
    tells(answer_to_greeting({kMajor - 1, kMinor, kPatch, GGML_MAX_NAME}), "speaks version 6.");
    tells(answer_to_greeting({kMajor, kMinor, kPatch + 1, GGML_MAX_NAME}), "speaks version");
    tells(answer_to_greeting({kMajor, kMinor, kPatch, 64}), "names of tensors of 64 bytes");
    tells(answer_to_greeting({kMajor, kMinor, kPatch, 0}), "is no flux2-rpc-server");
}

TEST_CASE("what is no server or no address is refused with words") {
    const auto nobody = test::error_of([] { add_servers(address_of(free_port())); });
    CHECK(nobody.kind == ErrorKind::backend);
    CHECK(nobody.message.find("cannot be reached") != std::string::npos);
    for (const char* text : {"", "localhost", ":1", "a:0", "a:65536", "a:b", "a:1,", "::1:50052"}) {
        INFO(text);
        CHECK(test::error_of([&] { add_servers(text); }).kind == ErrorKind::bad_argument);
    }
    const Listener taken;
    const auto second = run_program(std::string(FLUX2_RPC_SERVER_PROGRAM) + " --no-cache --port " +
                                    std::to_string(taken.port()));
    CHECK(second.exit_code == 5);
    CHECK(second.err.find("cannot listen on") != std::string::npos);
    CHECK(run_program(std::string(FLUX2_RPC_SERVER_PROGRAM) + " --no-cache --host example.org")
              .exit_code == 2);
    const auto open =
        run_program(std::string(FLUX2_RPC_SERVER_PROGRAM) + " --no-cache --host 0.0.0.0 --port " +
                    std::to_string(taken.port()));
    CHECK(open.err.find("neither a password nor encryption") != std::string::npos);
}

}  // namespace
}  // namespace flux2
