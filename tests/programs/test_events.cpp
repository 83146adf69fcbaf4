// flux2 --json: what a program that starts flux2 reads.
#include <flux2/image.hpp>
#include "support/cli.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

namespace flux2 {
namespace {

using nlohmann::json;
using test::Arguments;
using test::joined;
using test::small_picture;

// Every line of the output, which must be an event.
std::vector<json> events_of(const test::ProgramResult& result) {
    std::vector<json> events;
    for (const std::string& line : test::lines_of(result.out)) {
        const json event = json::parse(line, nullptr, false);
        REQUIRE_MESSAGE(event.is_object(), "no event: " << line);
        REQUIRE(event.at("event").is_string());
        events.push_back(event);
    }
    return events;
}

void check_progress(const std::vector<json>& events) {
    std::map<std::string, double> shares;
    for (const json& event : events) {
        if (event["event"] != "progress") {
            continue;
        }
        const double share = event.at("share").get<double>();
        CHECK(share >= 0);
        CHECK(share <= 1);
        CHECK(event.at("seconds").get<double>() >= 0);
        CHECK(event.at("step").get<int>() <= event.at("steps").get<int>());
        double& last = shares[event.at("stage").get<std::string>()];
        CHECK(share >= last);
        last = share;
    }
    CHECK(shares.contains("loading"));
    CHECK(shares["denoising"] == doctest::Approx(1));
    CHECK(shares["decoding"] == doctest::Approx(1));
}

TEST_CASE("a picture is told as progress and one event with its facts") {
    const test::TemporaryFolder folder;
    const std::string file = (folder / "x.png").string();
    const auto result = test::flux2_program(
        joined(small_picture(), {"--json", "--steps", "2", "-s", "7", "-p", "a \xff house", "-r",
                                 test::fixture("klein/ref_0.png").string(), "-o", file}));
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    const std::vector<json> events = events_of(result);
    check_progress(events);
    REQUIRE_FALSE(events.empty());
    const json& picture = events.back();
    CHECK(picture["event"] == "picture");
    CHECK(picture["file"] == file);
    CHECK(picture["width"] == 64);
    CHECK(picture["height"] == 64);
    CHECK(picture["steps"] == 2);
    CHECK(picture["seed"] == 7);
    CHECK(picture["prompt"] == "a \xef\xbf\xbd house");
    CHECK(picture["references"].size() == 1);
    CHECK(picture["sigmas"].size() == 3);
    CHECK(picture["prompt_cached"] == false);
    CHECK(picture["seconds"]["denoise"].get<double>() > 0);
    CHECK(picture["model"]["transformer"]["sha256"].get<std::string>().size() == 64);
}

TEST_CASE("several pictures are several events, each of its own seed and file") {
    const test::TemporaryFolder folder;
    const auto result =
        test::flux2_program(joined(small_picture(), {"--json", "-p", "x", "-b", "3", "-s", "5",
                                                     "-o", (folder / "x-{seed}.png").string()}));
    std::set<int> seeds;
    for (const json& event : events_of(result)) {
        if (event["event"] == "picture") {
            seeds.insert(event["seed"].get<int>());
        }
    }
    CHECK(seeds == std::set<int>{5, 6, 7});
    CHECK(folder.names() == std::vector<std::string>{"x-5.png", "x-6.png", "x-7.png"});
}

TEST_CASE("pictures of one pass are those made one at a time, in files of their own") {
    const test::TemporaryFolder folder;
    const auto draw = [&](const std::string& name, const Arguments& more) {
        return test::flux2_program(
            joined(joined(small_picture(), {"--json", "-p", "x", "-s", "5", "-o",
                                            (folder / (name + "-{seed}.png")).string()}),
                   more));
    };
    CHECK(events_of(draw("one", {"-b", "3"})).back()["event"] == "picture");
    // Two, then the last; the number of pictures alone means one pass of as many.
    CHECK(events_of(draw("two", {"-b", "3", "--batch-size", "2"})).back()["event"] == "picture");
    CHECK(events_of(draw("all", {"--batch-size", "3"})).back()["event"] == "picture");
    CHECK(folder.names().size() == 9);
    for (const std::string seed : {"5", "6", "7"}) {
        const Image one = load_image(folder / ("one-" + seed + ".png"));
        for (const std::string name : {"two", "all"}) {
            const Image other = load_image(folder / (name + "-" + seed + ".png"));
            REQUIRE(other.rgb.size() == one.rgb.size());
            int largest = 0;
            for (size_t i = 0; i < one.rgb.size(); ++i) {
                largest = std::max(largest, std::abs(int{one.rgb[i]} - int{other.rgb[i]}));
            }
            CHECK(largest <= 1);
        }
    }
}

TEST_CASE("warnings are messages") {
    const test::TemporaryFolder folder;
    const auto result = test::flux2_program(joined(
        small_picture(), {"--json", "-p", "x", "-g", "4", "-o", (folder / "x.png").string()}));
    const std::vector<json> events = events_of(result);
    REQUIRE_FALSE(events.empty());
    CHECK(events.front()["event"] == "message");
    CHECK(events.front()["level"] == "warning");
    CHECK(events.front()["text"].get<std::string>().find("guidance") != std::string::npos);
    CHECK(result.err.empty());
}

TEST_CASE("every failure is an event too, with the exit code and the line on stderr") {
    const test::TemporaryFolder folder;
    const std::string out = (folder / "x.png").string();
    const std::vector<Arguments> failing = {
        joined(small_picture(), {"--json", "-p", "x", "-W", "wide"}),
        joined(small_picture(), {"--json", "-p", "x", "--nonsense"}),
        joined(small_picture(), {"--json", "-p", "x", "-W", "100", "-o", out}),
        joined(small_picture(), {"--json", "-p", "x", "-r", "/no/such.png", "-o", out}),
        joined(small_picture(), {"--json", "-p", "x", "-o", "/dev/null/x.png"}),
        joined(small_picture(), {"--json", "-p", "x", "words"}),
        {"--json"},
        {"redo", "--json"},
        {"redo", "--json", "/no/such.png"},
    };
    for (const Arguments& arguments : failing) {
        CAPTURE(arguments.back());
        const auto result = test::flux2_program(arguments);
        const std::vector<json> events = events_of(result);
        REQUIRE(events.size() == 1);
        CHECK(events[0]["event"] == "error");
        CHECK(events[0]["code"] == result.exit_code);
        CHECK(result.exit_code != 0);
        CHECK(result.err == "flux2: " + events[0]["text"].get<std::string>() + "\n");
    }
    CHECK(folder.names().empty());
}

TEST_CASE("plan and info answer with one JSON value") {
    const auto plan = test::flux2_program(joined({"plan"}, joined(small_picture(), {"--json"})));
    CHECK(plan.exit_code == 0);
    CHECK(json::parse(plan.out).at("host_peak").get<uint64_t>() > 0);
    const auto info = test::flux2_program(
        {"info", "--json", test::fixture("klein/vae.safetensors").string(), "/no/such.gguf"});
    CHECK(info.exit_code == 3);
    CHECK(json::parse(info.out).at("files").size() == 2);
    CHECK(json::parse(info.out)["files"][1].contains("error"));
}

}  // namespace
}  // namespace flux2
