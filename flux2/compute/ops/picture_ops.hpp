// What convolutional networks do with pictures, in three forms, which a graph's Form chooses from:
// ggml's own operations on planes, which run on every device; nodes of our own
// (compute/plain/picture_nodes) as CPUs (compute/cpu) and NVIDIA GPUs (compute/cuda) compute them,
// which are many times faster and want the channels of a pixel side by side.
#pragma once

#include "compute/graph.hpp"

#include <ggml.h>

namespace flux2 {

// How a network of pictures is computed best. `suits_cuda`: its channels and types are such that
// the nodes on NVIDIA GPUs take it.
Form choose_picture_form(const Backend& backend, bool suits_cuda);

// A picture in the order of its graph's form: [w, h, channels] for ggml's operations, else
// [channels, w, h]; on NVIDIA GPUs in F16 where only convolutions read it. Callers never ask.
struct Picture {
    ggml_tensor* tensor = nullptr;
};

// Between pictures and the planes [w, h, channels] of a graph's inputs and outputs.
Picture from_planes(Graph& g, ggml_tensor* planes);
ggml_tensor* to_planes(Graph& g, const Picture& x);

// Weight [k, k, in, out] in F16 or F32 with k 1 or 3, bias [out].
struct Conv {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
};
// The result has the size of x, which has zeros around it.
Picture conv(Graph& g, const Conv& w, const Picture& x);
// skip + conv(x)
Picture conv_add(Graph& g, const Conv& w, const Picture& x, const Picture& skip);
// 3x3, halving the size: zeros on the right and at the bottom only.
Picture conv_down(Graph& g, const Conv& w, const Picture& x);
// The same with zeros on the left and at the top instead; sides are even.
Picture conv_down_centred(Graph& g, const Conv& w, const Picture& x);
// 3x3 over the picture with every pixel doubled both ways.
Picture conv_up(Graph& g, const Conv& w, const Picture& x);

struct GroupNorm {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
};
// 32 groups, eps 1e-6.
Picture group_norm(Graph& g, const GroupNorm& w, const Picture& x);
// Then x * sigmoid(x). With in_place x's memory is overwritten: nobody may read it later.
Picture group_norm_silu(Graph& g, const GroupNorm& w, const Picture& x, bool in_place = false);

// Another division into groups, then max(x, 0). Of small pictures: it takes a detour over planes.
Picture group_norm_relu(Graph& g, const GroupNorm& w, const Picture& x, int n_groups, float eps);
Picture relu(Graph& g, const Picture& x);

// Every pixel attends to all pixels, with one head as wide as there are channels.
Picture pixel_attention(Graph& g, const Picture& q, const Picture& k, const Picture& v);

}  // namespace flux2
