// Devices, and ggml's log messages.
#include "compute/backend.hpp"

#include "compute/devices/kinds.hpp"

#include <flux2/log.hpp>

#include <doctest/doctest.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace flux2 {
namespace {

// ggml's log callback as a program set it.
struct GgmlLog {
    ggml_log_callback callback = nullptr;
    void* data = nullptr;
};

GgmlLog current_log() {
    GgmlLog log;
    ggml_log_get(&log.callback, &log.data);
    return log;
}

void other_callback(ggml_log_level, const char*, void*) {}

TEST_CASE("ggml's log is taken once, so that a program may take it for itself") {
    list_devices();
    const GgmlLog ours = current_log();
    ggml_log_set(other_callback, nullptr);
    list_devices();
    const Backend backend("CPU");
    CHECK((current_log().callback == other_callback));
    ggml_log_set(ours.callback, ours.data);
}

TEST_CASE("ggml's warnings and errors come out of our log, the rest does not") {
    list_devices();
    const GgmlLog ggml = current_log();
    std::vector<std::string> lines;
    set_log([&](LogLevel level, const std::string& line) {
        lines.push_back((level == LogLevel::error ? "error " : "warning ") + line);
    });
    ggml.callback(GGML_LOG_LEVEL_INFO, "chatter\n", ggml.data);
    ggml.callback(GGML_LOG_LEVEL_WARN, "slow\n", ggml.data);
    ggml.callback(GGML_LOG_LEVEL_ERROR, "broken\n\n", ggml.data);
    set_log({});
    CHECK(lines == std::vector<std::string>{"warning slow", "error broken"});
}

TEST_CASE("what a log throws does not reach ggml") {
    list_devices();
    const GgmlLog ggml = current_log();
    set_log([](LogLevel, const std::string&) { throw std::runtime_error("full"); });
    CHECK_NOTHROW(ggml.callback(GGML_LOG_LEVEL_ERROR, "broken\n", ggml.data));
    set_log({});
}

ggml_backend_dev_t cpu_device() {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

TEST_CASE("the CPU is asked what it can do") {
    Backend backend("CPU", 1);
    CHECK(backend.is_cpu());
    const DeviceAbilities& abilities = backend.device().abilities();
    CHECK(abilities.operations == Operations::cpu);
    CHECK(abilities.multiplies_bf16 == (ggml_cpu_has_avx2() != 0));
    CHECK(abilities.takes_parallel_writes);
    CHECK(abilities.fails_softly);
    CHECK(backend.operations() == Operations::cpu);
    backend.use_stock_operations();
    CHECK(backend.operations() == Operations::stock);
}

TEST_CASE("a device of no kind of our own starts, and gets ggml's operations only") {
    const std::unique_ptr<Device> device = make_ggml_device(cpu_device());
    CHECK(device->name() == "CPU");
    CHECK(device->abilities().operations == Operations::stock);
    CHECK(!device->abilities().takes_parallel_writes);
    CHECK(!device->abilities().fails_softly);
    CHECK((device->start() != nullptr));
    const ggml_context_ptr context(
        ggml_init({.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    CHECK(device->repack_buffer_types(ggml_new_tensor_2d(context.get(), GGML_TYPE_Q4_0, 256, 256))
              .empty());
}

TEST_CASE("a kind of device takes none of another kind") {
    CHECK((make_cuda_device(cpu_device()) == nullptr));
    CHECK((make_cpu_device(cpu_device()) != nullptr));
}

}  // namespace
}  // namespace flux2
