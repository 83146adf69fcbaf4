// The CPU, with functions of ours for nodes (compute/cpu).
#include "compute/cpu/lanes.hpp"
#include "compute/cpu/matrix_tiles.hpp"
#include "compute/devices/kinds.hpp"

#include <ggml-cpu.h>

#include <algorithm>
#include <iterator>

namespace flux2 {
namespace {

// ggml's buffer types that repack matrices for this CPU.
std::vector<ggml_backend_buffer_type_t> find_repack_types(ggml_backend_dev_t cpu) {
    const auto get_extra =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
    std::vector<ggml_backend_buffer_type_t> types;
    ggml_backend_buffer_type_t* type = get_extra != nullptr ? get_extra(cpu) : nullptr;
    for (; type != nullptr && *type != nullptr; ++type) {
        types.push_back(*type);
    }
    return types;
}

// ggml tells whether it can multiply by a whole multiply, whose weight lies in such memory.
bool multiplies_from(ggml_backend_dev_t cpu, ggml_backend_buffer_type_t type,
                     const ggml_tensor* matrix) {
    constexpr size_t kTensors = 4;
    constexpr int64_t kColumns = 64;
    const ggml_context_ptr context(ggml_init(
        {.mem_size = kTensors * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    const ggml_backend_buffer_ptr nothing(ggml_backend_buft_alloc_buffer(type, 0));
    ggml_tensor* w = ggml_dup_tensor(context.get(), matrix);
    w->buffer = nothing.get();
    ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, w->ne[0], kColumns);
    return ggml_backend_dev_supports_op(cpu, ggml_mul_mat(context.get(), w, x));
}

class CpuDevice : public Device {
  public:
    CpuDevice(ggml_backend_dev_t device, const DeviceAbilities& abilities)
        : Device(device, abilities), repack_types_(find_repack_types(device)) {}

    std::vector<ggml_backend_buffer_type_t> repack_buffer_types(
        const ggml_tensor* matrix) const override {
        std::vector<ggml_backend_buffer_type_t> types;
        std::copy_if(repack_types_.begin(), repack_types_.end(), std::back_inserter(types),
                     [&](auto type) { return multiplies_from(ggml(), type, matrix); });
        return types;
    }

  private:
    std::vector<ggml_backend_buffer_type_t> repack_types_;  // the fastest first
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(ggml_backend_dev_t device) {
    if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU) {
        return nullptr;
    }
    return std::make_unique<CpuDevice>(
        device, DeviceAbilities{
                    // Without vectors ours would be slower than ggml's.
                    .operations = cpu::kHasVectors ? Operations::cpu : Operations::stock,
                    // On CPUs other than x86 ggml has only plain code for
                    // BF16, twenty times slower than for F16.
                    .multiplies_bf16 = ggml_cpu_has_avx2() != 0 || cpu::has_matrix_tiles(),
                    .takes_parallel_writes = true,
                    .fails_softly = true,
                });
}

}  // namespace flux2
