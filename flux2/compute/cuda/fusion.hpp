// Which nodes one kernel computes together.
#pragma once

#include <ggml.h>

namespace flux2::cuda {

// Whether `next` is the norm of what add_gated() gives in `node`, and may be written while the
// sources of `node` are still read: the allocator may have given it the memory of those that nobody
// reads later.
bool fuses_gate_and_norm(const ggml_tensor* node, const ggml_tensor* next);

}  // namespace flux2::cuda
