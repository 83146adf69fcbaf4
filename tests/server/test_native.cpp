// Our own API: jobs, events, history, plans, models.
#include "http/base64.hpp"
#include "support/folders.hpp"
#include "support/running_server.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

using namespace flux2;
using namespace flux2::test;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

json wait_for_end(const TestServer& server, const std::string& id) {
    for (int i = 0; i < 600; ++i) {
        json job = server.get("/api/v1/jobs/" + id).body;
        if (job["state"] != "queued" && job["state"] != "running") {
            return job;
        }
        std::this_thread::sleep_for(50ms);
    }
    FAIL("the job did not end");
    return {};
}

json small_job(int seed) {
    return {{"prompt", "a house"}, {"width", 64}, {"height", 64}, {"seed", seed}};
}

// Runs for minutes unless it is cancelled.
json long_job() {
    return {{"prompt", "a house"}, {"width", 256}, {"height", 256}, {"steps", 900}};
}

}  // namespace

TEST_CASE("a job is submitted, told about by events, and its picture fetched") {
    TestServer server;
    json request = small_job(5);
    request["preview"] = true;
    request["steps"] = 6;
    const auto submitted = server.post("/api/v1/jobs", request);
    REQUIRE(submitted.status == 202);
    const std::string id = submitted.body["id"];
    const auto stream = server.client().Get("/api/v1/jobs/" + id + "/events");
    REQUIRE(stream);
    const std::vector<Event> events = events_of(stream->body);
    REQUIRE_FALSE(events.empty());
    CHECK(events.back().name == "job");
    CHECK(events.back().data["state"] == "done");
    CHECK(events.back().data["progress"]["share"] == 1);
    double share = 0;
    for (const Event& event : events) {
        const json& progress = event.name == "job" ? event.data["progress"] : event.data;
        CHECK(progress["share"] >= share);
        share = progress["share"];
    }
    const auto result = server.get("/api/v1/jobs/" + id + "/result");
    REQUIRE(result.status == 200);
    const json& picture = result.body["pictures"][0];
    CHECK(picture["settings"]["seed"] == 5);
    CHECK(picture["settings"]["steps"] == 6);
    const auto file = server.client().Get(picture["url"].get<std::string>());
    REQUIRE(file);
    CHECK(decode_image(std::as_bytes(std::span(file->body))).width == 64);
}

TEST_CASE("a queued and a running job can be cancelled") {
    TestServer server;
    const std::string running = server.post("/api/v1/jobs", long_job()).body["id"];
    const auto queued = server.post("/api/v1/jobs", long_job());
    const std::string waiting = queued.body["id"];
    CHECK(server.get("/api/v1/jobs/" + waiting).body["state"] == "queued");
    CHECK(server.client().Post("/api/v1/jobs/" + waiting + "/cancel")->status == 200);
    CHECK(server.get("/api/v1/jobs/" + waiting).body["state"] == "cancelled");
    CHECK(server.client().Post("/api/v1/jobs/" + running + "/cancel")->status == 200);
    CHECK(wait_for_end(server, running)["state"] == "cancelled");
    CHECK(server.get("/api/v1/jobs/" + running + "/result").status == 499);
    CHECK(server.client().Delete("/api/v1/jobs/" + running)->status == 200);
    CHECK(server.get("/api/v1/jobs/" + running).status == 404);
    CHECK(server.get("/api/v1/jobs").body["jobs"].size() == 1);
}

TEST_CASE("a LoRA that a cancelled job was putting on is whole in the next picture") {
    server::ServerOptions options = test_options();
    options.lora_folder = test::tiny_model();
    options.model.load.threads = 1;
    TestServer server(options);
    const json lora = json::array({"blueprint-lora:0.5"});
    const auto picture = [&](const json& loras) {
        json request = {{"prompt", "a red house"}, {"size", "64x64"}, {"steps", 1}, {"seed", 1}};
        request["lora"] = loras;
        const auto answer = server.post("/v1/images/generations", request);
        REQUIRE(answer.status == 200);
        return answer.body["data"][0]["b64_json"].get<std::string>();
    };
    const std::string with = picture(lora);
    const std::string without = picture(json::array());
    CHECK(with != without);
    // Values of this size are of a single block's pair, of rank 8 with 2304 rows: those of the
    // double blocks are in place then.
    constexpr size_t kPairBytes = 2304 * 8 * sizeof(float);
    std::atomic<bool> waits = false;
    std::atomic<bool> is_cancelled = false;
    {
        const AllocationHook hook(kPairBytes, kPairBytes, [&](size_t n) {
            waits = true;
            while (n == 0 && !is_cancelled) {
                std::this_thread::sleep_for(1ms);
            }
        });
        json job = small_job(1);
        job["lora"] = lora;
        const std::string id = server.post("/api/v1/jobs", job).body["id"];
        for (int i = 0; i < 10'000 && !waits; ++i) {
            std::this_thread::sleep_for(1ms);
        }
        CHECK(waits);
        CHECK(server.client().Post("/api/v1/jobs/" + id + "/cancel")->status == 200);
        is_cancelled = true;
        CHECK(wait_for_end(server, id)["state"] == "cancelled");
    }
    CHECK(picture(lora) == with);
    CHECK(picture(json::array()) == without);
}

TEST_CASE("a job that fails says why, without a path of the machine") {
    server::ServerOptions options = test_options();
    options.lora_folder = test::tiny_model();
    TestServer server(options);
    json request = small_job(1);
    request["lora"] = json::array({"vae-bf16"});  // no LoRA
    const std::string id = server.post("/api/v1/jobs", request).body["id"];
    const json job = wait_for_end(server, id);
    CHECK(job["state"] == "failed");
    const std::string message = job["error"]["message"];
    CHECK(message.find("vae-bf16.gguf") != std::string::npos);
    CHECK(message.find('/') == std::string::npos);
}

TEST_CASE("a request for which memory does not suffice fails, and the next one works") {
    TestServer server;
    json failed;
    {
        const AllocationLimit limit(200'000);
        failed = server
                     .post("/v1/images/generations",
                           {{"prompt", "a house"}, {"size", "512x512"}, {"steps", 1}})
                     .body;
    }
    CHECK(failed["error"]["code"] == "out_of_memory");
    const auto next = server.post("/v1/images/generations",
                                  {{"prompt", "a house"}, {"size", "64x64"}, {"steps", 1}});
    CHECK(next.status == 200);
}

TEST_CASE("the history has pages, thumbnails and settings") {
    TestServer server;
    for (int seed = 1; seed <= 3; ++seed) {
        wait_for_end(server, server.post("/api/v1/jobs", small_job(seed)).body["id"]);
    }
    const auto first = server.get("/api/v1/history?limit=2");
    REQUIRE(first.body["pictures"].size() == 2);
    CHECK(first.body["pictures"][0]["settings"]["seed"] == 3);
    CHECK(first.body["pictures"][1]["settings"]["seed"] == 2);
    const std::string next = first.body["next"];
    const auto second = server.get("/api/v1/history?limit=2&before=" + next);
    REQUIRE(second.body["pictures"].size() == 1);
    CHECK(second.body["pictures"][0]["settings"]["seed"] == 1);
    CHECK(second.body["next"].is_null());
    CHECK(server.get("/api/v1/history?search=HOUSE").body["pictures"].size() == 3);
    CHECK(server.get("/api/v1/history?search=boat").body["pictures"].empty());
    const std::string id = second.body["pictures"][0]["id"];
    const auto thumbnail = server.client().Get("/api/v1/history/" + id + "/thumbnail");
    REQUIRE(thumbnail);
    CHECK(thumbnail->get_header_value("Content-Type") == "image/jpeg");
    CHECK(decode_image(std::as_bytes(std::span(thumbnail->body))).width == 64);
    CHECK(server.client().Delete("/api/v1/history/" + id)->status == 200);
    CHECK(server.get("/api/v1/history/" + id).status == 404);
}

TEST_CASE("a plan tells memory and time without making a picture") {
    TestServer server;
    const auto plan = server.post("/api/v1/plan", small_job(1));
    REQUIRE(plan.status == 200);
    CHECK(plan.body["host_bytes"] > 0);
    CHECK(plan.body["stages"].size() >= 3);
    CHECK(server.get("/api/v1/history").body["pictures"].empty());
}

TEST_CASE("a model can be loaded and unloaded") {
    TestServer server;
    const auto loaded_on = [&] {
        return server.get("/api/v1/models").body["models"][0]["loaded_on"].size();
    };
    CHECK(loaded_on() == 0);
    CHECK(server.post("/api/v1/models/load", {{"model", "tiny"}}).status == 200);
    CHECK(loaded_on() == 1);
    CHECK(server.post("/api/v1/models/unload", {{"model", "tiny"}}).status == 200);
    CHECK(loaded_on() == 0);
    CHECK(server.post("/api/v1/models/load", {{"model", "large"}}).status == 404);
}

TEST_CASE("models of a folder are chosen by name") {
    const TemporaryFolder folder;
    for (const char* name : {"one", "two"}) {
        std::filesystem::create_directory(folder / name);
        for (const char* file :
             {"flux2-tiny-bf16.gguf", "text-encoder-bf16.gguf", "vae-bf16.gguf"}) {
            std::filesystem::create_symlink(std::filesystem::path(test::tiny_model()) / file,
                                            folder / name / file);
        }
    }
    std::filesystem::create_directory(folder / "empty");
    server::ServerOptions options = test_options();
    options.model.folder.clear();
    options.models_folder = folder.path();
    TestServer server(options);
    std::set<std::string> names;
    const json models = server.get("/v1/models").body["data"];
    for (const json& model : models) {
        names.insert(model["id"].get<std::string>());
    }
    CHECK(names == std::set<std::string>{"one", "two"});
    json request = small_job(1);
    request["model"] = "two";
    const json job = wait_for_end(server, server.post("/api/v1/jobs", request).body["id"]);
    CHECK(job["pictures"][0]["settings"]["model"]["id"] == "two");
    CHECK(server.get("/api/v1/models").body["models"][1]["loaded_on"].size() == 1);
}

TEST_CASE("every route is described in the OpenAPI text, with the fields of its requests") {
    TestServer server;
    const json text = server.get("/api/v1/openapi.json").body;
    CHECK(text["openapi"] == "3.1.0");
    for (const server::Route& route : server.http().routes().all()) {
        std::string path = route.path;
        for (size_t at = path.find(":"); at != std::string::npos; at = path.find(":")) {
            const size_t end = std::min(path.find('/', at), path.size());
            path = path.substr(0, at) + "{" + path.substr(at + 1, end - at - 1) + "}" +
                   path.substr(end);
        }
        INFO(route.method << " " << path);
        REQUIRE(text["paths"].contains(path));
        std::string method = route.method == "GET"    ? "get"
                             : route.method == "POST" ? "post"
                                                      : "delete";
        REQUIRE(text["paths"][path].contains(method));
        CHECK_FALSE(text["paths"][path][method]["summary"].get<std::string>().empty());
    }
    const json& job = text["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]
                          ["application/json"]["schema"];
    CHECK(job["properties"]["width"]["maximum"] == 4096);
    CHECK(job["required"] == json::array({"prompt"}));
}
