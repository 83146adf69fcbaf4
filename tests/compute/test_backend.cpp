// Devices, and ggml's log messages.
#include "compute/backend.hpp"

#include "compute/cpu/matrix_tiles.hpp"
#include "compute/devices/kinds.hpp"
#include "compute/graph.hpp"

#include <flux2/log.hpp>

#include <doctest/doctest.h>
#include <ggml-backend-impl.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstdint>
#include <memory>
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
    CHECK(abilities.multiplies_bf16 == (ggml_cpu_has_avx2() != 0 || cpu::has_matrix_tiles()));
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

TEST_CASE("GPUs that a CPU imitates are told by their names") {
    for (const char* name : {"llvmpipe (LLVM 15.0.6, 256 bits)", "SwiftShader Device (LLVM 10.0.0)",
                             "Microsoft Direct3D12 (Microsoft Basic Render Driver)"}) {
        CAPTURE(name);
        CHECK(names_software_device(name));
    }
    for (const char* name : {"NVIDIA H200", "AMD Radeon RX 7900 XTX (RADV NAVI31)", "Apple M2",
                             "Intel(R) Arc(tm) A770 Graphics (DG2)"}) {
        CAPTURE(name);
        CHECK(!names_software_device(name));
    }
    for (const DeviceInfo& device : list_devices()) {
        CHECK((device.name != "CPU" || !device.is_software));
    }
}

TEST_CASE("a CPU takes tensors of any size, and matrices of all types that files have") {
    const std::unique_ptr<Device> device = make_cpu_device(cpu_device());
    REQUIRE((device != nullptr));
    CHECK(device->takes(1));
    CHECK(device->takes(uint64_t{1} << 40));
    const ggml_context_ptr context(ggml_init(
        {.mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K}) {
        CHECK(device->multiplies(ggml_new_tensor_2d(context.get(), type, 256, 64)));
    }
}

TEST_CASE("tensors are spread over buffers that are not larger than a device allows") {
    const Backend backend("CPU", 1);
    ggml_backend_buffer_type small = *backend.cpu_buffer_type();
    small.iface.get_max_size = [](ggml_backend_buffer_type_t) -> size_t { return 4096; };
    const ggml_context_ptr context(ggml_init(
        {.mem_size = 16 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    std::vector<ggml_tensor*> tensors;
    for (const int64_t n : {256, 256, 512, 1, 700, 700, 1024, 5}) {  // values of 4 bytes
        tensors.push_back(ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, n));
    }
    const TensorBuffer spread = backend.allocate(tensors, &small, "vectors");
    // 256 + 256 + 512 fill the first; 1 + 700, 700, 1024 and 5 take one each.
    CHECK(spread.buffers.size() == 5);
    for (const auto& buffer : spread.buffers) {
        CHECK(ggml_backend_buffer_get_size(buffer.get()) <= 4096);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
        const std::vector<float> values(static_cast<size_t>(tensors[i]->ne[0]),
                                        static_cast<float>(i));
        ggml_backend_tensor_set(tensors[i], values.data(), 0, ggml_nbytes(tensors[i]));
    }
    for (size_t i = 0; i < tensors.size(); ++i) {  // none overlaps another
        std::vector<float> values(static_cast<size_t>(tensors[i]->ne[0]));
        ggml_backend_tensor_get(tensors[i], values.data(), 0, ggml_nbytes(tensors[i]));
        CHECK(std::count(values.begin(), values.end(), static_cast<float>(i)) ==
              static_cast<std::ptrdiff_t>(values.size()));
    }
}

TEST_CASE("a graph on a CPU has all operations there and copies nothing") {
    const Backend backend("CPU", 1);
    Graph g(backend, 16);
    ggml_tensor* x = g.input_f32("x", {4});
    ggml_tensor* y = ggml_add(g, x, ggml_sqr(g, x));
    g.finish(y);
    g.set(x, std::vector<float>{0, 1, 2, 3});
    g.compute();
    CHECK(g.read(y).data == std::vector<float>{0, 2, 6, 12});
    CHECK(g.placement().n_operations == 2);
    CHECK(g.placement().on_cpu.empty());
    CHECK(g.placement().n_copies == 0);
}

TEST_CASE("a kind of device takes none of another kind") {
    CHECK((make_cuda_device(cpu_device()) == nullptr));
    CHECK((make_cpu_device(cpu_device()) != nullptr));
}

}  // namespace
}  // namespace flux2
