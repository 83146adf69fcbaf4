// The forms for CPUs of nodes between matrix multiplies (compute/plain/token_nodes): each in one
// pass over its rows, where ggml takes several. Tensors are F32, and their rows may lie apart.
#pragma once

#include <ggml.h>

namespace flux2::cpu {

void modulate(ggml_tensor* y, int ith, int nth, void* work);
void rms_norm(ggml_tensor* y, int ith, int nth, void* work);
// Every span has a gate.
void add_gated(ggml_tensor* y, int ith, int nth, void* work);
void swiglu(ggml_tensor* y, int ith, int nth, void* work);
void join_heads(ggml_tensor* y, int ith, int nth, void* work);

}  // namespace flux2::cpu
