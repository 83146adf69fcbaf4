// Devices of other machines: flux2-rpc-server processes on this one.
#include <flux2/flux2.hpp>
#include "checkpoints/checkpoint.hpp"
#include "compute/graph.hpp"
#include "compute/weights.hpp"
#include "formats/safetensors.hpp"
#include "rpc/servers.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>
#include <ggml-rpc.h>
#include <nlohmann/json.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <thread>

namespace flux2 {
namespace {

using test::address_of;
using test::CountingProxy;
using test::free_port;
using test::Listener;
using test::RemoteServer;
using test::run_program;
using test::TemporaryFolder;

std::string draw(const std::string& options) {
    return test::flux2_path() + " -m " + test::tiny_model() +
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

    const auto planned = run_program(test::flux2_path() + " plan -m " + test::tiny_model() +
                                     " -p x -W 128 -H 128 --no-cache --where" + servers +
                                     " --device CPU --device-diffusion RPC0,RPC1 --split 1,1");
    CHECK(planned.exit_code == 0);
    CHECK(planned.out.find("RPC0     double 0-1;") != std::string::npos);
    CHECK(planned.out.find("RPC1     single 0-3;") != std::string::npos);
}

TEST_CASE("from the second step on hardly more than the activations at the cuts travels") {
    const RemoteServer first_server, second_server;
    const CountingProxy first(first_server.port()), second(second_server.port());
    const std::vector<std::string> names = add_servers(first.address() + "," + second.address());
    REQUIRE(names.size() == 2);
    LoadOptions options;
    options.device = "CPU";
    options.transformer.device = names[0] + "," + names[1];
    options.type = "Q8_0";  // many times as fast as BF16 in ggml's products on Arm
    options.split = "1,1";
    Pipeline pipeline = Pipeline::load(find_model(test::tiny_model()).files, options);
    Request request;
    request.prompt = "a red circle";
    request.width = request.height = 256;
    request.seed = 1;
    constexpr int kSteps = 3;
    request.steps = kSteps;

    // The tiny model is 256 wide and has 64 tokens of text; a token of 16 by 16 pixels has 128
    // channels. Between the servers tokens go through this process.
    constexpr uint64_t kImg = 256, kTxt = 64, kWidth = 256, kChannels = 128;
    constexpr uint64_t kLatent = kImg * kChannels * sizeof(float);
    constexpr uint64_t kCut = (kImg + kTxt) * kWidth * sizeof(float);
    struct Bytes {
        uint64_t to_first, from_first, to_second, from_second;
    };
    constexpr Bytes kLeast = {kLatent, kCut, kCut, kLatent};

    std::vector<Bytes> after;  // each step
    const auto draw_counted = [&] {
        after.clear();
        pipeline.generate(request, [&](const Step& step) {
            if (step.stage == Stage::denoise && static_cast<size_t>(step.step) > after.size()) {
                after.push_back({first.to_server(), first.from_server(), second.to_server(),
                                 second.from_server()});
            }
            return true;
        });
        REQUIRE(after.size() == kSteps);
    };
    const auto check_steps = [&] {
        for (size_t i = 1; i < after.size(); ++i) {
            const auto is_near = [&](uint64_t Bytes::*count) {
                const uint64_t found = after[i].*count - after[i - 1].*count;
                const uint64_t least = kLeast.*count;
                CHECK(found >= least);
                CHECK(static_cast<double>(found) <= 1.1 * static_cast<double>(least));
            };
            is_near(&Bytes::to_first);
            is_near(&Bytes::from_first);
            is_near(&Bytes::to_second);
            is_near(&Bytes::from_second);
        }
    };
    draw_counted();
    check_steps();
    // The second picture of these sizes needs no graphs at all.
    draw_counted();
    check_steps();

    uint64_t planned = 0;
    for (const StepTraffic& traffic : pipeline.plan(request).traffic) {
        planned += traffic.activations;
    }
    CHECK(planned == kLatent + kCut + kLatent);
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

    const RemoteServer again(lost.port(), "--no-cache");
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
    Pipeline pipeline = Pipeline::load(find_model(test::tiny_model()).files, options);
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

// Memory of one device is freed while the graph of the other is used again: between a picture and
// one that starts from it, the autoencoder's graph changes and the transformer's does not.
TEST_CASE("parts on two devices of one server draw a picture, and another from it") {
    const RemoteServer server("--no-cache --device CPU,CPU");
    const std::vector<std::string> names = add_servers(server.address());
    REQUIRE(names.size() == 2);
    LoadOptions here;
    here.type = "F32";
    here.device = "CPU";
    here.keep_loaded = true;
    LoadOptions there = here;
    there.transformer.device = names[0];
    there.vae.device = names[1];
    const ModelFiles files = find_model(test::tiny_model()).files;
    Pipeline local = Pipeline::load(files, here);
    Pipeline remote = Pipeline::load(files, there);
    Request request;
    request.prompt = "a red circle";
    request.width = request.height = 128;
    request.seed = 1;
    for (int i = 0; i < 2; ++i) {
        const Image drawn = remote.generate(request).image;
        const Image expected = local.generate(request).image;
        CHECK(difference(drawn, expected).largest <= kMostOfF32);
        request.init = InitImage{expected};
    }
    CHECK(remote.device() == names[0]);
}

TEST_CASE("the time of a split transformer is that of its blocks on each device") {
    const RemoteServer first, second;
    const std::vector<std::string> names = add_servers(first.address() + "," + second.address());
    REQUIRE(names.size() == 2);
    Request request;
    request.prompt = "x";
    request.width = request.height = 128;
    const auto seconds_on = [&](const std::string& devices, const std::string& split) {
        LoadOptions options;
        options.device = "CPU";
        options.transformer.device = devices;
        options.type = "Q8_0";
        options.split = split;
        Pipeline pipeline = Pipeline::load(find_model(test::tiny_model()).files, options);
        const MemoryPlan plan = pipeline.plan(request);
        CHECK(plan.seconds > 0);
        const auto transformer =
            std::find_if(plan.stages.begin(), plan.stages.end(),
                         [](const StageMemory& stage) { return stage.stage == "transformer"; });
        REQUIRE(transformer != plan.stages.end());
        return transformer->seconds;
    };
    // Both servers have a thread of the same machine, on which other programs run too: they make
    // single measurements longer, never shorter.
    constexpr int kTries = 3;
    double alone = seconds_on(names[0], "");
    double shared = seconds_on(names[0] + "," + names[1], "1,1");
    for (int i = 1; i < kTries; ++i) {
        alone = std::min(alone, seconds_on(names[0], ""));
        shared = std::min(shared, seconds_on(names[0] + "," + names[1], "1,1"));
    }
    CHECK(shared > alone / 3);
    CHECK(shared < alone * 3);
}

TEST_CASE("a computation there ends when it is computed, not when it is sent") {
    const RemoteServer server;
    const std::vector<std::string> names = add_servers(server.address());
    REQUIRE(names.size() == 1);
    const Backend backend(names.front(), 1);
    constexpr int64_t kSide = 2048;
    Graph graph(backend, 8);
    ggml_tensor* a = graph.input_f32("a", {kSide, kSide});
    ggml_tensor* b = graph.input_f32("b", {kSide, kSide});
    graph.finish(ggml_mul_mat(graph, a, b));
    const std::vector<float> ones(kSide * kSide, 1.0f);
    graph.set(a, ones);
    graph.set(b, ones);
    const auto start = std::chrono::steady_clock::now();
    graph.compute();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    constexpr double kMostSpeed = 1e12;  // operations per second that no core reaches
    CHECK(seconds >= 2.0 * kSide * kSide * kSide / kMostSpeed);
}

TEST_CASE("selftest and bench use devices of other machines") {
    const RemoteServer server;
    const std::string on_server = " --device RPC0 --rpc " + server.address();
    const auto tested = run_program(test::flux2_path() + " selftest" + on_server);
    CHECK(tested.exit_code == 0);
    CHECK(tested.out.find(" passed, 0 failed") != std::string::npos);
    const auto timed = run_program(test::flux2_path() + " bench --stage encoder --repeat 1 -m " +
                                   test::tiny_model() + on_server);
    CHECK(timed.exit_code == 0);
    CHECK(timed.out.find("device RPC0") != std::string::npos);
    CHECK(timed.out.find("text encoder") != std::string::npos);
}

TEST_CASE("several devices draw the pictures that one of them draws") {
    RemoteServer first;
    RemoteServer second;
    const TemporaryFolder folder;
    test::write_file(folder / "prompts", "a red circle\na blue square\na green circle\n");
    const std::string pictures =
        test::flux2_path() + " -m " + test::tiny_model() + " --prompt-file " +
        (folder / "prompts").string() +
        " -s 5 --batch-count 3 --batch-size 2 -W 64 -H 64 --steps 2 --no-cache --type Q8_0 --rpc " +
        first.address() + "," + second.address();
    const auto drawn = [&](const std::string& name, const std::string& device) {
        const auto result = run_program(pictures + " --json --device " + device + " -o " +
                                        (folder / (name + "-%d-{seed}.png")).string());
        REQUIRE(result.exit_code == 0);
        std::vector<nlohmann::json> events;
        std::istringstream lines(result.out);
        for (std::string line; std::getline(lines, line);) {
            if (nlohmann::json event = nlohmann::json::parse(line); event["event"] == "picture") {
                events.push_back(std::move(event));
            }
        }
        REQUIRE(events.size() == 9);
        return events;
    };
    const std::vector<nlohmann::json> one = drawn("one", "RPC0");
    const std::vector<nlohmann::json> two = drawn("two", "RPC0,rpc1");
    std::set<std::string> used;
    for (size_t i = 0; i < one.size(); ++i) {
        const std::string seed = std::to_string(5 + i % 3);
        const auto name_of = [&](const char* run) {
            return (folder / (std::string(run) + "-" + std::to_string(i + 1) + "-" + seed + ".png"))
                .string();
        };
        CHECK(one[i]["file"] == name_of("one"));
        CHECK(two[i]["file"] == name_of("two"));
        CHECK(load_image(name_of("one")).rgb == load_image(name_of("two")).rgb);
        for (const char* key : {"prompt", "seed", "model", "sigmas", "parts", "type"}) {
            CHECK(one[i][key] == two[i][key]);
        }
        used.insert(two[i]["device"].get<std::string>());
    }
    CHECK(used == std::set<std::string>{"RPC0", "RPC1"});

    second.kill();
    const auto lost =
        run_program(pictures + " --device RPC0,RPC1 -o " + (folder / "x.png").string());
    CHECK(lost.exit_code == 5);
    for (const char* wrong : {"RPC0,RPC0", "CPU,", "CPU,CUDA9", "CPU,RPC0 --device-diffusion CPU",
                              "CPU,RPC0 --split auto"}) {
        INFO(wrong);
        CHECK(run_program(draw("--rpc " + first.address() + " -o x.png --device " + wrong))
                  .exit_code == 2);
    }
}

TEST_CASE("a server keeps large matrices in its folder and is sent them once") {
    const TemporaryFolder folder;
    // 16 MiB; tensors of more than 10 MiB are kept.
    constexpr int64_t kSide = 2048;
    std::vector<float> values(kSide * kSide);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i % 1009) - 504.0f;
    }
    constexpr uint64_t kBytes = kSide * kSide * sizeof(float);
    const auto write = [&](const char* name) {
        write_safetensors(folder / name,
                          {{"double_stream_modulation_img.lin.weight", {kSide, kSide}, values},
                           {"img_in.weight", {kSide, kSide}, values}});
    };
    write("x.safetensors");
    const RemoteServer server("--cache " + (folder / "kept").string());
    const CountingProxy proxy(server.port());
    const std::vector<std::string> names = add_servers(proxy.address());
    REQUIRE(names.size() == 1);
    const Backend backend(names.front(), 1);
    const auto bytes_to_load = [&](const char* name) {
        const Checkpoint checkpoint = Checkpoint::open(folder / name);
        Weights weights(backend, checkpoint, {{"img_in.weight", {kSide, kSide}}}, {});
        ggml_tensor* matrix = weights.matrix("img_in.weight");
        const uint64_t before = proxy.to_server();
        weights.load();
        std::vector<float> back(values.size());
        ggml_backend_tensor_get(matrix, back.data(), 0, kBytes);
        CHECK(back == values);
        return proxy.to_server() - before;
    };
    CHECK(bytes_to_load("x.safetensors") >= kBytes);
    size_t n_kept = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "kept")) {
        CHECK(entry.file_size() == kBytes);
        ++n_kept;
    }
    CHECK(n_kept == 1);
    constexpr uint64_t kLittle = 10'000;
    CHECK(bytes_to_load("x.safetensors") < kLittle);
    values[7] += 1;
    write("y.safetensors");
    CHECK(bytes_to_load("y.safetensors") >= kBytes);
    CHECK(bytes_to_load("y.safetensors") < kLittle);
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
    const auto second =
        run_program(test::rpc_server_path() + " --no-cache --port " + std::to_string(taken.port()));
    CHECK(second.exit_code == 5);
    CHECK(second.err.find("cannot listen on") != std::string::npos);
    CHECK(run_program(test::rpc_server_path() + " --no-cache --host example.org").exit_code == 2);
    const auto open = run_program(test::rpc_server_path() + " --no-cache --host 0.0.0.0 --port " +
                                  std::to_string(taken.port()));
    CHECK(open.err.find("neither a password nor encryption") != std::string::npos);
}

}  // namespace
}  // namespace flux2
