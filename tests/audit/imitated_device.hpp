// Devices that no machine of ours has, added to ggml's list under the names of their backends: they
// take the operations that the real ones take, and compute them on the CPU.
#pragma once

#include <ggml-backend.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace flux2::test {

struct ImitatedDevice {
    std::string backend;  // as ggml names it
    std::string name;     // of the device, for Backend
    std::string what;     // for readers
    std::function<bool(const ggml_tensor* node)> takes;
};

// Apple, AMD and Intel GPUs, of all kinds between which the answers may differ.
const std::vector<ImitatedDevice>& imitated_devices();

// Adds them to ggml's list; once.
void add_imitated_devices();

// How many nodes they have computed so far.
size_t n_computed_nodes();

}  // namespace flux2::test
