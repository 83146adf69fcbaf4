// flux2 in containers: their limits on memory and processors count in devices, plans and pictures.
// A container is imitated by other files in place of the system's, and made of a real control group
// where this machine allows it. Not for the sanitizers, which take more memory.
#include <flux2/error.hpp>
#include "base/check.hpp"
#include "base/file.hpp"
#include "support/cli.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMega = 1'000'000;

std::string picture_arguments(const fs::path& picture) {
    return concat(" --no-cache -m '", test::tiny_model(),
                  "' -p house -W 256 -H 256 --steps 1 -t 1 --device CPU -o ",
                  test::quoted(picture.string()));
}

// A control group of version 2 that flux2 sees as its own, by binding files over the system's.
class ImitatedContainer {
  public:
    ImitatedContainer(uint64_t memory_max, const std::string& cpu_max) {
        fs::create_directory(folder_ / "group");
        test::write_file(folder_ / "group/memory.max", concat(memory_max, "\n"));
        test::write_file(folder_ / "group/memory.current", std::string_view("0\n"));
        test::write_file(folder_ / "group/cpu.max", cpu_max + "\n");
        test::write_file(folder_ / "own", std::string_view("0::/\n"));
        test::write_file(folder_ / "mounts",
                         std::string_view("31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"));
    }

    static bool is_allowed() { return test::run_program("unshare --mount true").exit_code == 0; }
    test::ProgramResult run(const std::string& arguments) const {
        const std::string here = folder_.path().string();
        return test::run_program(concat(
            "unshare --mount --propagation private sh -c 'mount --bind ", here,
            "/group /sys/fs/cgroup && mount --bind ", here, "/own /proc/$$/cgroup && mount --bind ",
            here, "/mounts /proc/$$/mountinfo && exec \"$0\" \"$@\"' '", test::flux2_path(), "' ",
            arguments));
    }

  private:
    test::TemporaryFolder folder_;
};

// A control group that the system really limits, beside all others of this machine.
class RealContainer {
  public:
    static RealContainer with_memory(uint64_t bytes) {
        return RealContainer("memory", "memory.limit_in_bytes", "memory.max", bytes);
    }
    static RealContainer with_threads(uint64_t n) {
        return RealContainer("pids", "pids.max", "pids.max", n);
    }
    ~RealContainer() {
        std::error_code ignored;
        fs::remove(folder_, ignored);
    }
    RealContainer(const RealContainer&) = delete;
    RealContainer& operator=(const RealContainer&) = delete;

    // The name of its limit; empty where no group can be made.
    const std::string& limit() const { return limit_; }
    test::ProgramResult run(const std::string& program, const std::string& arguments) const {
        return test::run_program(concat("sh -c 'echo $$ > ", folder_.string(),
                                        "/cgroup.procs && exec \"$0\" \"$@\"' '", program, "' ",
                                        arguments));
    }

  private:
    // The names of the limit in both versions of control groups.
    RealContainer(const char* controller, const char* first, const char* second, uint64_t value) {
        const fs::path groups = "/sys/fs/cgroup";
        const std::string name = concat("flux2-test-", draw_number());
        try_in(groups / controller / name, first, value);
        if (limit_.empty()) {
            try_in(groups / name, second, value);
        }
    }
    void try_in(const fs::path& folder, const std::string& limit, uint64_t value) {
        std::error_code error;
        if (!fs::create_directory(folder, error)) {
            return;
        }
        // The system itself makes the file in a folder that is a group.
        if (fs::exists(folder / limit, error)) {
            std::ofstream file(folder / limit);
            file << value << std::flush;
            limit_ = file.good() ? limit : "";
        }
        if (limit_.empty()) {
            fs::remove(folder, error);
            return;
        }
        folder_ = folder;
    }

    fs::path folder_;
    std::string limit_;
};

// What the picture takes where hardly any RAM is free.
uint64_t least_need(const test::TemporaryFolder& folder) {
    const ImitatedContainer small(1, "max 100000");
    const auto planned = small.run("plan --json" + picture_arguments(folder / "x.png"));
    REQUIRE(planned.exit_code == 0);
    return nlohmann::json::parse(planned.out).at("host_peak").get<uint64_t>();
}

TEST_CASE("an imitated container limits devices, threads, plans and pictures") {
    if (!ImitatedContainer::is_allowed()) {
        CHECK(test::run_program(test::flux2_path() + " devices").exit_code == 0);
        MESSAGE("not run: this user may not bind files over the system's");
        return;
    }
    const test::TemporaryFolder folder;
    const ImitatedContainer two_gigabytes(2'000 * kMega, "100000 100000");
    const auto devices = two_gigabytes.run("devices");
    CAPTURE(devices.err);
    CHECK(devices.exit_code == 0);
    CHECK(test::has(devices.out, ", 1 core, 2000 of 2000 MB free"));
    const auto drawn = two_gigabytes.run(picture_arguments(folder / "drawn.png"));
    CAPTURE(drawn.err);
    CHECK(drawn.exit_code == 0);
    CHECK(fs::exists(folder / "drawn.png"));

    const uint64_t need = least_need(folder);
    const ImitatedContainer too_small(need / 2, "max 100000");
    const auto planned = too_small.run("plan" + picture_arguments(folder / "no.png"));
    CAPTURE(planned.err);
    CHECK(planned.exit_code == 0);
    CHECK(test::has(planned.err, "does not fit"));
    CHECK(test::has(planned.err, "this container may use"));
    CHECK(test::has(planned.err, "(memory.max)"));
    const auto refused = too_small.run(picture_arguments(folder / "no.png"));
    CHECK(refused.exit_code == exit_code(ErrorKind::out_of_memory));
    CHECK(test::has(refused.err, "this container may use"));
    CHECK(!fs::exists(folder / "no.png"));
}

TEST_CASE("in a real control group pictures stay inside, or are refused with a sentence") {
    const test::TemporaryFolder folder;
    const uint64_t need = ImitatedContainer::is_allowed() ? least_need(folder) : 0;
    constexpr uint64_t kOfTheSystem = 16 * kMega;  // page tables and stacks, which plans leave out
    const auto large = RealContainer::with_memory(2 * need + kOfTheSystem);
    if (need == 0 || large.limit().empty()) {
        CHECK(test::run_program(test::flux2_path() + " devices").exit_code == 0);
        MESSAGE("not run: this user may not make control groups that limit memory");
        return;
    }
    const auto drawn = large.run(test::flux2_path(), picture_arguments(folder / "drawn.png"));
    CAPTURE(drawn.err);
    CHECK(drawn.exit_code == 0);
    CHECK(fs::exists(folder / "drawn.png"));

    const auto small = RealContainer::with_memory(need / 2);
    const auto refused = small.run(test::flux2_path(), picture_arguments(folder / "no.png"));
    CAPTURE(refused.err);
    CHECK(refused.exit_code == exit_code(ErrorKind::out_of_memory));
    CHECK(test::has(refused.err, "this container may use"));
    CHECK(test::has(refused.err, small.limit()));
    CHECK(!fs::exists(folder / "no.png"));
}

TEST_CASE("programs that are refused threads work with those they get") {
    const test::TemporaryFolder folder;
    const std::string arguments =
        concat("'", test::tiny_model(), "/vae-bf16.gguf' --type Q8_0 -o ");
    const fs::path few = folder / "few.gguf";
    const fs::path all = folder / "all.gguf";
    REQUIRE(test::run_program(test::convert_path() + " " + arguments + all.string()).exit_code ==
            0);
    for (const uint64_t n_threads : {1, 2, 3, 8}) {
        const auto container = RealContainer::with_threads(n_threads);
        if (container.limit().empty()) {
            MESSAGE("not run: this user may not make control groups that limit threads");
            return;
        }
        const auto converted =
            container.run(test::convert_path(), arguments + few.string() + " --threads 64");
        CAPTURE(n_threads);
        CAPTURE(converted.err);
        CHECK(converted.exit_code == 0);
        CHECK(test::read_file(few) == test::read_file(all));
        fs::remove(few);
    }
    const auto container = RealContainer::with_threads(1);
    const auto drawn = container.run(test::flux2_path(), picture_arguments(folder / "drawn.png"));
    CAPTURE(drawn.err);
    CHECK((drawn.exit_code == 0 || drawn.exit_code == exit_code(ErrorKind::out_of_memory)));
    CHECK((drawn.exit_code == 0 || test::has(drawn.err, "the system starts no more threads")));
}

}  // namespace
}  // namespace flux2
