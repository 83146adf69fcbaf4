#include "audit/imitated_device.hpp"

#include "audit/answers.h"

#include <ggml-backend-impl.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>
#include <ggml-impl.h>

#include <deque>

namespace flux2::test {
namespace {

size_t n_computed = 0;

// What ggml has of one device: its list keeps pointers to it.
struct Entry {
    const ImitatedDevice* imitated = nullptr;
    ggml_backend_reg reg = {};
    ggml_backend_device device = {};
    ggml_backend_buffer_type memory = {};
};

const Entry& entry_of(ggml_backend_dev_t device) {
    return *static_cast<const Entry*>(device->context);
}

// ---- Memory: the CPU's, but not said to be ----

const char* memory_name(ggml_backend_buffer_type_t type) {
    return entry_of(type->device).imitated->name.c_str();
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer =
        ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (buffer != nullptr) {
        buffer->buft = type;
    }
    return buffer;
}

size_t alignment(ggml_backend_buffer_type_t) {
    return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
}

// ---- A started device ----

const char* backend_name(ggml_backend_t backend) {
    return entry_of(backend->device).imitated->name.c_str();
}

void free_backend(ggml_backend_t backend) {
    ggml_backend_free(static_cast<ggml_backend_t>(backend->context));
    delete backend;
}

ggml_status compute(ggml_backend_t backend, ggml_cgraph* graph) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        if (!entry_of(backend->device).imitated->takes(graph->nodes[i])) {
            return GGML_STATUS_FAILED;
        }
    }
    n_computed += static_cast<size_t>(graph->n_nodes);
    return ggml_backend_graph_compute(static_cast<ggml_backend_t>(backend->context), graph);
}

ggml_backend_t start(ggml_backend_dev_t device, const char*) {
    static ggml_guid guid = {0xf1, 0x02, 0xa0};
    auto* backend = new ggml_backend{};
    backend->guid = &guid;
    backend->iface.get_name = backend_name;
    backend->iface.free = free_backend;
    backend->iface.graph_compute = compute;
    backend->device = device;
    backend->context = ggml_backend_cpu_init();
    return backend;
}

// ---- The device ----

const char* device_name(ggml_backend_dev_t device) {
    return entry_of(device).imitated->name.c_str();
}

const char* device_description(ggml_backend_dev_t device) {
    return entry_of(device).imitated->what.c_str();
}

void device_memory(ggml_backend_dev_t, size_t* free, size_t* total) {
    *free = *total = size_t{1} << 40;
}

enum ggml_backend_dev_type device_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

void device_properties(ggml_backend_dev_t device, ggml_backend_dev_props* properties) {
    *properties = {};
    properties->name = device_name(device);
    properties->description = device_description(device);
    properties->type = GGML_BACKEND_DEVICE_TYPE_GPU;
    device_memory(device, &properties->memory_free, &properties->memory_total);
}

ggml_backend_buffer_type_t memory_of(ggml_backend_dev_t device) {
    return const_cast<ggml_backend_buffer_type_t>(&entry_of(device).memory);
}

bool supports_operation(ggml_backend_dev_t device, const ggml_tensor* node) {
    return entry_of(device).imitated->takes(node);
}

bool supports_memory(ggml_backend_dev_t device, ggml_backend_buffer_type_t type) {
    return type == memory_of(device);
}

// ---- The list ----

const char* registry_name(ggml_backend_reg_t reg) {
    return static_cast<const Entry*>(reg->context)->imitated->backend.c_str();
}

size_t device_count(ggml_backend_reg_t) {
    return 1;
}

ggml_backend_dev_t device_of(ggml_backend_reg_t reg, size_t) {
    return &static_cast<Entry*>(reg->context)->device;
}

void fill(Entry& entry, const ImitatedDevice& imitated) {
    entry.imitated = &imitated;
    entry.reg.api_version = GGML_BACKEND_API_VERSION;
    entry.reg.iface.get_name = registry_name;
    entry.reg.iface.get_device_count = device_count;
    entry.reg.iface.get_device = device_of;
    entry.reg.context = &entry;
    entry.device.iface.get_name = device_name;
    entry.device.iface.get_description = device_description;
    entry.device.iface.get_memory = device_memory;
    entry.device.iface.get_type = device_type;
    entry.device.iface.get_props = device_properties;
    entry.device.iface.init_backend = start;
    entry.device.iface.get_buffer_type = memory_of;
    entry.device.iface.supports_op = supports_operation;
    entry.device.iface.supports_buft = supports_memory;
    entry.device.reg = &entry.reg;
    entry.device.context = &entry;
    entry.memory.iface.get_name = memory_name;
    entry.memory.iface.alloc_buffer = allocate;
    entry.memory.iface.get_alignment = alignment;
    entry.memory.device = &entry.device;
}

}  // namespace

const std::vector<ImitatedDevice>& imitated_devices() {
    const auto metal = [](bool has_bfloat) {
        return [=](const ggml_tensor* node) { return flux2_metal_takes(node, has_bfloat); };
    };
    const auto hip = [](int architecture) {
        return [=](const ggml_tensor* node) { return flux2_hip_takes(node, architecture); };
    };
    static const std::vector<ImitatedDevice> devices = {
        {"MTL", "Metal", "Apple M1 and newer", metal(true)},
        {"MTL", "Metal without bfloat", "the same with GGML_METAL_BF16_DISABLE", metal(false)},
        {"ROCm", "gfx906", "Radeon VII, MI50", hip(0x906)},
        {"ROCm", "gfx942", "MI300", hip(0x942)},
        {"ROCm", "gfx1030", "RX 6000", hip(0x1030)},
        {"ROCm", "gfx1100", "RX 7000", hip(0x1100)},
        {"ROCm", "gfx1200", "RX 9000", hip(0x1200)},
        {"SYCL", "SYCL", "Intel GPUs", flux2_sycl_takes},
    };
    return devices;
}

void add_imitated_devices() {
    static std::deque<Entry> entries;
    if (!entries.empty()) {
        return;
    }
    for (const ImitatedDevice& imitated : imitated_devices()) {
        fill(entries.emplace_back(), imitated);
        ggml_backend_register(&entries.back().reg);
    }
}

size_t n_computed_nodes() {
    return n_computed;
}

}  // namespace flux2::test
