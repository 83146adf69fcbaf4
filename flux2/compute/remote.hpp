// Devices of other machines, through ggml's RPC as ggml/rpc.cmake changes it.
#pragma once

#include <ggml-backend.h>

#include <optional>
#include <string>

namespace flux2 {

bool is_remote(ggml_backend_dev_t device);

// Why the server of a remote device cannot be used, for a sentence that begins with its address:
// "was lost". Nothing while it can, and for devices of this machine.
std::optional<std::string> why_lost(ggml_backend_dev_t device);

}  // namespace flux2
