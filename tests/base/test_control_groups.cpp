// Control groups as the files of systems with them say, in a folder that stands for "/".
#include "base/control_groups.hpp"

#include "support/support.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// A machine whose process is in these groups; each file is given by its path.
class Machine {
  public:
    Machine(const std::string& groups, const std::string& mounts) {
        put("proc/self/cgroup", groups);
        put("proc/self/mountinfo", "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n" +
                                       mounts + "a line without its separator\n\n");
    }
    Machine& put(const fs::path& file, const std::string& text) {
        fs::create_directories((root_.path() / file).parent_path());
        test::write_file(root_.path() / file, text);
        return *this;
    }
    GroupLimits limits() const { return read_group_limits(root_.path()); }

  private:
    test::TemporaryFolder root_;
};

const std::string kVersion2 =
    "31 22 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string kMemory1 =
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
const std::string kCpu1 =
    "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

TEST_CASE("a container of version 2 says its memory, without pages of files, and its processors") {
    Machine machine("0::/\n", kVersion2);
    machine.put("sys/fs/cgroup/memory.max", "2000000000\n")
        .put("sys/fs/cgroup/memory.high", "max\n")
        .put("sys/fs/cgroup/memory.current", "900000000\n")
        .put("sys/fs/cgroup/memory.stat",
             "anon 300000000\nfile 600000000\ninactive_file 400000000\nactive_file 100000000\n")
        .put("sys/fs/cgroup/cpu.max", "250000 100000\n");
    const GroupLimits limits = machine.limits();
    REQUIRE(limits.memory.size() == 1);
    CHECK(limits.memory[0].name == "memory.max");
    CHECK(limits.memory[0].bytes == 2'000'000'000);
    CHECK(limits.memory[0].left == 1'600'000'000);  // 2000 - (900 - 500) MB
    CHECK(limits.cores == 3);                       // 2.5 of them
}

TEST_CASE("every group around the own one limits it too") {
    Machine machine("0::/system.slice/flux2.service\n", kVersion2);
    machine.put("sys/fs/cgroup/system.slice/flux2.service/memory.max", "max\n")
        .put("sys/fs/cgroup/system.slice/flux2.service/memory.high", "3000000000\n")
        .put("sys/fs/cgroup/system.slice/flux2.service/memory.current", "1000000000\n")
        .put("sys/fs/cgroup/system.slice/flux2.service/cpu.max", "max 100000\n")
        .put("sys/fs/cgroup/system.slice/memory.max", "4000000000\n")
        .put("sys/fs/cgroup/system.slice/memory.current", "3900000000\n")
        .put("sys/fs/cgroup/system.slice/cpu.max", "50000 100000\n");
    const GroupLimits limits = machine.limits();
    REQUIRE(limits.memory.size() == 2);
    CHECK(limits.memory[0].name == "memory.high");
    CHECK(limits.memory[0].left == 2'000'000'000);
    CHECK(limits.memory[1].name == "memory.max");
    CHECK(limits.memory[1].bytes == 4'000'000'000);
    CHECK(limits.memory[1].left == 100'000'000);
    CHECK(limits.cores == 1);
}

TEST_CASE("a container of version 1 shows its group as the root of what is mounted") {
    const std::string memory =
        "35 31 0:32 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    const std::string cpu =
        "36 31 0:33 /docker/0123 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n";
    Machine machine("5:cpu,cpuacct:/docker/0123\n4:memory:/docker/0123\n1:name=systemd:/\n",
                    memory + cpu);
    machine.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000000000\n")
        .put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000000000\n")
        .put("sys/fs/cgroup/memory/memory.stat",
             "inactive_file 1\ntotal_inactive_file 3000000000\ntotal_active_file 1000000000\n")
        .put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n")
        .put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    const GroupLimits limits = machine.limits();
    REQUIRE(limits.memory.size() == 1);
    CHECK(limits.memory[0].name == "memory.limit_in_bytes");
    CHECK(limits.memory[0].bytes == 8'000'000'000);
    CHECK(limits.memory[0].left == 7'000'000'000);
    CHECK(limits.cores == 2);
}

TEST_CASE("a machine with both versions has limits in either") {
    Machine machine("4:memory:/a/b\n5:cpu,cpuacct:/c\n0::/d\n", kMemory1 + kCpu1 + kVersion2);
    machine.put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n")
        .put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000000\n")
        .put("sys/fs/cgroup/memory/a/memory.use_hierarchy", "1\n")
        .put("sys/fs/cgroup/memory/memory.limit_in_bytes", "500000000\n")
        .put("sys/fs/cgroup/memory/memory.use_hierarchy", "0\n")
        .put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "-1\n")
        .put("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n")
        .put("sys/fs/cgroup/d/memory.max", "700000000\n")
        .put("sys/fs/cgroup/d/cpu.max", "100000 100000\n");
    const GroupLimits limits = machine.limits();
    REQUIRE(limits.memory.size() == 2);
    CHECK(limits.memory[0].bytes == 700'000'000);
    CHECK(limits.memory[1].bytes == 1'000'000'000);
    CHECK(limits.memory[1].left == 1'000'000'000);  // what is in use is not told
    CHECK(limits.cores == 1);
}

TEST_CASE("a group outside of what is mounted counts as the mounted one") {
    Machine machine("0::/../other\n", kVersion2);
    machine.put("sys/fs/cgroup/memory.max", "600000000\n")
        .put("sys/fs/other/memory.max", "1\n");  // beside the mount, which nothing may reach
    REQUIRE(machine.limits().memory.size() == 1);
    CHECK(machine.limits().memory[0].bytes == 600'000'000);
}

TEST_CASE("what is missing, no number or absurdly large is no limit") {
    CHECK(read_group_limits("/no/such/folder").memory.empty());
    Machine machine("0::/\ngarbage\n:\n", kVersion2);
    CHECK(machine.limits().memory.empty());
    CHECK(!machine.limits().cores);
    for (const char* text : {"", "max", "-5", "12 34", "0x10", "1e9", "99999999999999999999999",
                             "18446744073709551615", "2000000000x"}) {
        CAPTURE(text);
        machine.put("sys/fs/cgroup/memory.max", text);
        CHECK(machine.limits().memory.empty());
    }
    for (const char* text :
         {"", "100000", "max max", "0 100000", "100000 0", "-1 100000", "a b", "1 2 3"}) {
        CAPTURE(text);
        machine.put("sys/fs/cgroup/cpu.max", text);
        CHECK(!machine.limits().cores);
    }
    // More in use than allowed, as after the limit was lowered.
    machine.put("sys/fs/cgroup/memory.max", "5").put("sys/fs/cgroup/memory.current", "7");
    REQUIRE(machine.limits().memory.size() == 1);
    CHECK(machine.limits().memory[0].left == 0);
    machine.put("sys/fs/cgroup/cpu.max", "18446744073709551615 1");
    CHECK(machine.limits().cores.value() > 1'000);
}

}  // namespace
}  // namespace flux2
