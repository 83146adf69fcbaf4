// What flux2.h promises about threads.
#include <flux2/flux2.h>
#include "support/folders.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Watch {
    std::atomic<int> n_steps = 0;
};

bool on_progress(const flux2_step* step, void* user_data) {
    auto& watch = *static_cast<Watch*>(user_data);
    if (step->stage == FLUX2_STAGE_DENOISE) {
        watch.n_steps = step->step;
    }
    return true;
}

flux2_pipeline* load_tiny() {
    flux2_load_options options = flux2_load_options_default();
    options.device = "CPU";
    options.threads = 1;
    flux2_pipeline* pipeline = nullptr;
    REQUIRE(flux2_load(flux2::test::tiny_model(), &options, &pipeline) == FLUX2_OK);
    return pipeline;
}

flux2_request small_request(int steps) {
    flux2_request request = flux2_request_default();
    request.prompt = "a red house";
    request.width = request.height = 64;
    request.steps = steps;
    request.has_seed = 1;
    request.seed = 1;
    return request;
}

struct Made {
    flux2_status status = FLUX2_OK;
    std::vector<uint8_t> rgb;
};

Made make(flux2_pipeline* pipeline, const flux2_request& request) {
    flux2_result result = flux2_result_default();
    Made made;
    made.status = flux2_generate(pipeline, &request, &result);
    if (made.status == FLUX2_OK) {
        made.rgb.assign(result.image.rgb, result.image.rgb + 64 * 64 * 3);
    }
    flux2_result_free(&result);
    return made;
}

// A request with its own token and step counter.
struct CancellableRequest {
    explicit CancellableRequest(int steps) : request(small_request(steps)) {
        REQUIRE(flux2_cancel_token_create(&token) == FLUX2_OK);
        request.cancel = token;
        request.progress = on_progress;
        request.progress_data = &watch;
    }
    ~CancellableRequest() { flux2_cancel_token_free(token); }
    CancellableRequest(const CancellableRequest&) = delete;
    CancellableRequest& operator=(const CancellableRequest&) = delete;

    flux2_cancel_token* token = nullptr;
    Watch watch;
    flux2_request request;
};

void wait_for_a_step(const CancellableRequest& each) {
    while (each.watch.n_steps == 0) {
        std::this_thread::yield();
    }
}

constexpr int kMany = 1000;  // steps, which take long enough to be cancelled in between

TEST_CASE("another thread cancels one of several queued requests, running or waiting") {
    flux2_pipeline* pipeline = load_tiny();
    const Made alone = make(pipeline, small_request(2));
    CancellableRequest running(kMany);
    CancellableRequest waiting(kMany);
    CancellableRequest last(2);
    std::vector<Made> made;
    std::thread server([&] {
        for (const CancellableRequest* each : {&running, &waiting, &last}) {
            made.push_back(make(pipeline, each->request));
        }
    });
    wait_for_a_step(running);
    flux2_cancel_token_raise(waiting.token);
    flux2_cancel_token_raise(running.token);
    server.join();
    CHECK(made[0].status == FLUX2_CANCELLED);
    CHECK(running.watch.n_steps < kMany);
    CHECK(made[1].status == FLUX2_CANCELLED);
    CHECK(waiting.watch.n_steps == 0);
    CHECK(made[2].status == FLUX2_OK);
    CHECK(made[2].rgb == alone.rgb);
    flux2_free(pipeline);
}

TEST_CASE("pipelines in several threads make what each makes alone; a token ends its own only") {
    flux2_pipeline* first = load_tiny();
    flux2_pipeline* second = load_tiny();
    const Made alone = make(first, small_request(4));
    CancellableRequest cancelled(kMany);
    CancellableRequest whole(4);
    Made one;
    std::vector<Made> others;
    std::thread first_thread([&] { one = make(first, cancelled.request); });
    std::thread second_thread([&] {
        for (int i = 0; i < 3; ++i) {
            others.push_back(make(second, whole.request));
        }
    });
    wait_for_a_step(cancelled);
    wait_for_a_step(whole);
    flux2_cancel_token_raise(cancelled.token);
    first_thread.join();
    second_thread.join();
    CHECK(one.status == FLUX2_CANCELLED);
    for (const Made& other : others) {
        CHECK(other.status == FLUX2_OK);
        CHECK(other.rgb == alone.rgb);
    }
    flux2_free(first);
    flux2_free(second);
}

TEST_CASE("a failure is told to the thread it happened in") {
    flux2_image image{};
    CHECK(flux2_image_load("/no/such/here.png", FLUX2_ALPHA_DROP, &image) == FLUX2_BAD_FILE);
    std::string before;
    std::string after;
    std::thread([&] {
        before = flux2_last_error();
        flux2_image other{};
        flux2_image_load("/no/such/there.png", FLUX2_ALPHA_DROP, &other);
        after = flux2_last_error();
    }).join();
    CHECK(before.empty());
    CHECK(after.find("there.png") != std::string::npos);
    CHECK(std::string(flux2_last_error()).find("here.png") != std::string::npos);
    CHECK(std::string(flux2_last_error()).find("there.png") == std::string::npos);
}

}  // namespace
