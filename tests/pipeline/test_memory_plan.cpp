// What a job takes in memory, and whether all parts may stay loaded.
#include "pipeline/memory_plan.hpp"

#include "compute/backend.hpp"
#include "support/folders.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>

namespace flux2 {
namespace {

constexpr uint64_t kProgramBytes = 100'000'000;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// A planner over the bundled model in F32, with a job that encodes a reference.
struct Planned {
    LoadOptions options;
    Model model = open_model(find_model(test::tiny_model()).files, "");
    Job job;

    Planned() {
        options.device = "CPU";
        options.threads = 1;
        options.type = "F32";
        options.keep_loaded = true;
        job.width = job.height = 64;
        job.text_length = 32;
        job.references = {{128, 128}};
    }
    MemoryPlanner planner() const { return MemoryPlanner(model, options, kProgramBytes); }
};

TEST_CASE("what stays loaded is counted once, however many stages use it") {
    const Planned planned;
    MemoryPlanner planner = planned.planner();
    const MemoryPlan plan =
        planner.choose(planned.job, {.device = kNoLimit, .host = kNoLimit}).plan;
    REQUIRE(plan.stages.size() == 4);
    const auto weights = [&](size_t stage) { return plan.stages[stage].host_weights; };
    REQUIRE(plan.stages[1].stage == "encode references");
    REQUIRE(plan.stages[3].stage == "decode");
    REQUIRE(weights(1) == weights(3));  // the same autoencoder
    const uint64_t all_weights = weights(0) + weights(2) + weights(3);
    CHECK(plan.host_peak > all_weights + kProgramBytes);
    // The program's memory is in the figures of every stage, but counts once in the total.
    uint64_t compute = 0;
    for (const StageMemory& stage : plan.stages) {
        compute += stage.host_compute - kProgramBytes;
    }
    CHECK(plan.host_peak <= all_weights + compute + kProgramBytes);
}

TEST_CASE("parts that do not fit together are loaded in turn, and kept again when they fit") {
    const Planned planned;
    MemoryPlanner planner = planned.planner();
    const MemoryChoice together =
        planner.choose(planned.job, {.device = kNoLimit, .host = kNoLimit});
    CHECK(together.keep_loaded);
    CHECK(together.why_in_turn.empty());
    const uint64_t limit = together.plan.host_peak;
    CHECK(planner.choose(planned.job, {.device = kNoLimit, .host = limit}).keep_loaded);

    const MemoryChoice in_turn =
        planner.choose(planned.job, {.device = kNoLimit, .host = limit - 1});
    CHECK(!in_turn.keep_loaded);
    CHECK(in_turn.plan.host_peak < limit);
    CHECK(in_turn.why_in_turn.find("loaded one at a time") != std::string::npos);

    Job large = planned.job;
    large.width = large.height = 512;
    CHECK(!planner.choose(large, {.device = kNoLimit, .host = limit}).keep_loaded);
    CHECK(planner.choose(planned.job, {.device = kNoLimit, .host = limit}).keep_loaded);
}

TEST_CASE("parts that need not stay are planned in turn") {
    Planned planned;
    planned.options.keep_loaded = false;
    MemoryPlanner planner = planned.planner();
    const MemoryChoice choice = planner.choose(planned.job, {.device = kNoLimit, .host = kNoLimit});
    CHECK(!choice.keep_loaded);
    CHECK(choice.why_in_turn.empty());
    uint64_t largest = 0;
    for (const StageMemory& stage : choice.plan.stages) {
        largest = std::max(largest, stage.host_weights + stage.host_compute);
    }
    CHECK(choice.plan.host_peak == largest);
}

TEST_CASE("a known shape is not measured again") {
    const Planned planned;
    MemoryPlanner planner = planned.planner();
    const MemoryLimits no_limit = {.device = kNoLimit, .host = kNoLimit};
    const MemoryPlan first = planner.choose(planned.job, no_limit).plan;
    CHECK(planner.n_measured() == 4);
    Job other = planned.job;
    other.seed = 7;
    other.prompt = "something else";
    CHECK(planner.choose(other, no_limit).plan.host_peak == first.host_peak);
    CHECK(planner.n_measured() == 4);
    // The text encoder's and the reference's shapes stay.
    other.width = 512;
    const uint64_t wide = planner.choose(other, no_limit).plan.host_peak;
    CHECK(planner.n_measured() == 6);
    CHECK(wide > first.host_peak);
    MemoryPlanner fresh = planned.planner();
    CHECK(fresh.choose(other, no_limit).plan.host_peak == wide);
}

TEST_CASE("a device on which a lack of memory ends the program keeps a reserve") {
    CHECK(usable_bytes(3200, {.fails_softly = true}) == 3200);
    CHECK(usable_bytes(3200, {.fails_softly = false}) == 3100);
}

TEST_CASE("what may be used of a device lowers what is free there, and never raises it") {
    const Backend backend("CPU", 1, BackendUse::measure);
    const Device& device = backend.device();
    const uint64_t total = device.memory().total;
    REQUIRE(total > 0);
    CHECK(usable_bytes(device, 0, 1'000'000) == 1'000'000);
    CHECK(usable_bytes(device, 0, kNoLimit) <= total);
    CHECK(usable_bytes(device, 0, 0) <= total);
    // Networks that are freed when necessary make room.
    CHECK(usable_bytes(device, total, 0) >= total);
}

TEST_CASE("the largest number of pictures that fit is found in few tries") {
    for (int most = 1; most <= 64; ++most) {
        for (int fitting = 1; fitting <= 64; ++fitting) {
            int n_tries = 0;
            const int found = largest_suitable(most, [&](int n) {
                ++n_tries;
                return n <= fitting;
            });
            REQUIRE(found == std::min(most, fitting));
            REQUIRE(n_tries <= 7);
        }
    }
}

TEST_CASE("pictures are decoded in bands before they take the last of the free RAM") {
    CHECK(usable_ram_bytes(32'000'000'000) == 30'000'000'000);
    CHECK(usable_ram_bytes(2'000'000'000) == 1'500'000'000);
    CHECK(usable_ram_bytes(400'000'000) == 0);

    Planned planned;
    planned.job.width = planned.job.height = 1024;
    MemoryPlanner planner = planned.planner();
    MemoryLimits limits = {.device = kNoLimit, .host = kNoLimit};
    const MemoryChoice whole = planner.choose(planned.job, limits);
    CHECK(whole.maps.decode == MapMemory::whole);
    const StageMemory& decoding = whole.plan.stages.back();
    limits.free_host = decoding.host_weights + decoding.host_compute;
    CHECK(planner.choose(planned.job, limits).maps.decode == MapMemory::whole);
    limits.free_host = usable_ram_bytes(limits.free_host);
    CHECK(planner.choose(planned.job, limits).maps.decode != MapMemory::whole);
}

}  // namespace
}  // namespace flux2
