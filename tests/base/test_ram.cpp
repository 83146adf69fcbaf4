// Limits on memory, as they lower what the machine has.
#include "base/ram.hpp"

#include "support/support.hpp"

#include <doctest/doctest.h>

namespace flux2 {
namespace {

constexpr uint64_t kGiga = 1'000'000'000;
constexpr MachineMemory kMachine = {64 * kGiga, 50 * kGiga};

TEST_CASE("without limits a process can have what the machine has") {
    const Ram ram = lower_ram(kMachine, 3 * kGiga, {});
    CHECK(ram.total == 64 * kGiga);
    CHECK(ram.available == 50 * kGiga);
    CHECK(ram.most == 64 * kGiga);
    CHECK(ram.why_most == "this machine has 64 GB");
}

TEST_CASE("the tightest limit counts, and what the process holds is its own") {
    const Ram ram = lower_ram(kMachine, 1 * kGiga,
                              {{8 * kGiga, 6 * kGiga, "memory.high"},
                               {10 * kGiga, 2 * kGiga, "memory.max"},
                               {100 * kGiga, 90 * kGiga, "ulimit -v"}});
    CHECK(ram.total == 8 * kGiga);
    CHECK(ram.available == 2 * kGiga);
    CHECK(ram.most == 3 * kGiga);
    CHECK(ram.why_most == "this container may use 10 GB (memory.max), of which 3 GB are left");
    CHECK(lower_ram(kMachine, 0, {{kGiga, kGiga / 2, "ulimit -v"}}).why_most ==
          "this process may use 1 GB (ulimit -v), of which 0.5 GB are left");
}

TEST_CASE(
    "limits hold where the machine tells nothing, and one that is used up leaves no unknown") {
    const Ram ram = lower_ram({}, 0, {{kGiga, 0, "memory.max"}});
    CHECK(ram.total == kGiga);
    CHECK(ram.available == 1);  // 0 would mean that nothing is known
    CHECK(ram.most == 1);
    const Ram unknown = lower_ram({}, 0, {});
    CHECK(unknown.available == 0);
    CHECK(unknown.most == 0);
}

TEST_CASE("what the system tells of this process is plausible") {
    const Ram ram = process_ram();
    CHECK(ram.available <= ram.total);
    CHECK(ram.most <= ram.total + own_memory_bytes());
    CHECK(logical_cores() >= physical_cores());
#ifdef __linux__
    CHECK(ram.available > 1'000'000);
    CHECK(ram.total <= machine_memory().total);
#endif
}

}  // namespace
}  // namespace flux2
