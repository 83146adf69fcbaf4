// flux2-server as a program: start, signals, TLS, options that cannot work.
#include "support/folders.hpp"
#include "support/needs.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

using namespace flux2;
using namespace flux2::test;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

bool has_openssl() {
    return std::system("openssl version > /dev/null 2>&1") == 0;
}

// The program in the background.
class Program {
  public:
    explicit Program(const std::string& options) {
        const ProgramResult started = run_program(
            server_path() + " --port 0 --no-cache --device CPU -m " + test::tiny_model() + " " +
            options + " > " + file("out") + " 2> " + file("log") + " < /dev/null & echo $!");
        process_ = std::stoi(started.out);
        for (int i = 0; i < 400 && address().empty(); ++i) {
            std::this_thread::sleep_for(25ms);
        }
        INFO(log());
        REQUIRE_FALSE(address().empty());
    }
    ~Program() {
        if (is_running()) {
            send(SIGKILL);
        }
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    void send(int signal) const { kill(process_, signal); }
    bool is_running() const { return kill(process_, 0) == 0; }
    bool ends_within(std::chrono::milliseconds limit) const {
        for (auto passed = 0ms; passed < limit && is_running(); passed += 20ms) {
            std::this_thread::sleep_for(20ms);
        }
        return !is_running();
    }
    std::string log() const {
        std::ifstream in(file("log"));
        std::ostringstream text;
        text << in.rdbuf();
        return text.str();
    }
    std::string address() const {
        const std::string text = log(), key = "event=ready address=";
        const size_t at = text.find(key);
        return at == std::string::npos
                   ? ""
                   : text.substr(at + key.size(),
                                 text.find(' ', at + key.size()) - at - key.size());
    }
    httplib::Client client() const {
        httplib::Client client(address());
        client.set_read_timeout(1min);
        return client;
    }

  private:
    std::string file(const char* name) const { return (folder_ / name).string(); }

    TemporaryFolder folder_;
    int process_ = 0;
};

constexpr const char* kSmallJob = R"({"prompt": "a house", "width": 64, "height": 64, "seed": 1})";
constexpr const char* kLongJob =
    R"({"prompt": "a house", "width": 256, "height": 256, "steps": 900})";

std::string submit(const Program& program, const char* job) {
    const auto answer = program.client().Post("/api/v1/jobs", job, "application/json");
    REQUIRE(answer);
    REQUIRE(answer->status == 202);
    return json::parse(answer->body)["id"];
}

}  // namespace

TEST_CASE("after SIGTERM the server finishes its jobs and keeps their pictures") {
    const TemporaryFolder results;
    const Program program("--output-dir " + results.path().string());
    submit(program, kSmallJob);
    submit(program, kSmallJob);
    program.send(SIGTERM);
    CHECK(program.ends_within(30s));
    size_t n_pictures = 0;
    for (const std::string& name : results.names()) {
        n_pictures += name.ends_with(".png") ? 1 : 0;
    }
    CHECK(n_pictures == 2);
    CHECK(program.log().find("event=stopped") != std::string::npos);
}

TEST_CASE("a stream gets its last event although the server is told to stop") {
    const Program program("");
    std::thread stop([&] {
        std::this_thread::sleep_for(100ms);
        program.send(SIGTERM);
    });
    const auto answer = program.client().Post(
        "/v1/images/generations",
        R"({"prompt": "a house", "size": "64x64", "steps": 20, "stream": true})",
        "application/json");
    stop.join();
    REQUIRE(answer);
    CHECK(answer->body.find("image_generation.completed") != std::string::npos);
    CHECK(program.ends_within(30s));
}

TEST_CASE("jobs that last longer than --drain-seconds are cancelled") {
    const Program program("--drain-seconds 1");
    submit(program, kLongJob);
    program.send(SIGTERM);
    CHECK(program.ends_within(10s));
    CHECK(program.log().find("state=cancelled") != std::string::npos);
}

TEST_CASE("a second signal cancels jobs at once") {
    const Program program("--drain-seconds 600");
    submit(program, kLongJob);
    program.send(SIGINT);
    std::this_thread::sleep_for(200ms);
    program.send(SIGINT);
    CHECK(program.ends_within(10s));
}

TEST_CASE("with a certificate the server speaks HTTPS" *
          test::needs(has_openssl(), "needs the program openssl")) {
    const TemporaryFolder folder;
    const std::string key = (folder / "key.pem").string(),
                      certificate = (folder / "c.pem").string();
    const ProgramResult made = run_program(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout " + key +
        " -out " + certificate);
    REQUIRE_MESSAGE(made.exit_code == 0, made.err);
    const Program program("--tls-cert " + certificate + " --tls-key " + key);
    CHECK(program.address().starts_with("https://"));
    httplib::Client client = program.client();
    client.enable_server_certificate_verification(false);
    const auto health = client.Get("/health");
    REQUIRE(health);
    CHECK(health->status == 200);
    // A client that goes away is noticed here too.
    {
        httplib::Client impatient(program.address());
        impatient.enable_server_certificate_verification(false);
        impatient.set_read_timeout(300ms);
        CHECK_FALSE(impatient.Post("/v1/images/generations",
                                   R"({"prompt": "a house", "size": "256x256", "steps": 900})",
                                   "application/json"));
    }
    bool is_idle = false;
    for (int i = 0; i < 100 && !is_idle; ++i) {
        std::this_thread::sleep_for(50ms);
        const auto state = client.Get("/api/v1/capabilities");
        is_idle = state && json::parse(state->body)["queue"]["running"] == 0;
    }
    CHECK(is_idle);
}

TEST_CASE("the log has the id of the answer and no line for requests with --quiet") {
    const Program program("");
    const auto answer = program.client().Get("/v1/models");
    REQUIRE(answer);
    CHECK(program.log().find("id=" + answer->get_header_value("x-request-id")) !=
          std::string::npos);
    const Program quiet("--quiet");
    REQUIRE(quiet.client().Get("/v1/models"));
    CHECK(quiet.log().find("event=request") == std::string::npos);
}

TEST_CASE("options can come from the environment") {
    setenv("FLUX2_ARG_API_KEY", "secret", 1);
    const Program program("");
    unsetenv("FLUX2_ARG_API_KEY");
    const auto answer = program.client().Get("/v1/models");
    REQUIRE(answer);
    CHECK(answer->status == 401);
}

TEST_CASE("options that cannot work end the program with a sentence") {
    const auto fails = [](const std::string& options, int code, const std::string& piece) {
        const ProgramResult result = run_program(server_path() + " " + options + " < /dev/null");
        INFO(options << "\n" << result.err);
        CHECK(result.exit_code == code);
        CHECK(result.err.find(piece) != std::string::npos);
        CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    };
    fails("--port 70000", 2, "--port 70000 is out of range");
    fails("--port x", 2, "--port");
    fails("--queue-size 0", 2, "--queue-size 0 is out of range");
    fails("--max-body 0", 2, "--max-body: '0'");
    fails("--host ''", 2, "--host is given an empty name");
    fails("--host 203.0.113.1 --port 0", 2, "cannot listen on");
    fails("--tls-cert a.pem", 2, "--tls-key");
    fails("--tls-cert no.pem --tls-key no.pem", 3, "no.pem: no such file");
    fails("--lora-dir /nowhere", 3, "/nowhere: no such folder");
    fails("--api-key-file /nowhere", 3, "/nowhere");
    fails("a house", 2, "what is 'a'");
}

TEST_CASE("the help names every group of options") {
    const ProgramResult help = run_program(server_path() + " --help");
    CHECK(help.exit_code == 0);
    for (const char* option : {"--port", "--api-key", "--models-dir", "--model", "--max-vram"}) {
        CHECK(help.out.find(option) != std::string::npos);
    }
}
