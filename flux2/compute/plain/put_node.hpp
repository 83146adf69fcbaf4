// Tensors that are filled part by part: some rows of a feature map, some columns of a matrix of
// tokens.
#pragma once

#include "compute/plain/own_node.hpp"

#include <ggml.h>

#include <cstdint>

namespace flux2::own {

extern const OwnOperation kPut;
struct PutParams {
    int64_t axis = 2;   // along which parts lie one after the other
    int64_t first = 0;  // where the part begins
};

// What is put must have the type and the other sizes of what it is put into. begin_put makes a
// tensor of size n along the axis, the rest of which is undefined, as are `spare_columns` after
// each row.
ggml_tensor* begin_put(Graph& g, ggml_tensor* part, int64_t n, const PutParams& params,
                       int64_t spare_columns = 0);
// In the memory of `to`, which is to be read by way of the result afterwards.
ggml_tensor* put(Graph& g, ggml_tensor* to, ggml_tensor* part, const PutParams& params);

// The source that is put.
inline const ggml_tensor* put_part(const ggml_tensor* node) {
    return node->src[1] != nullptr ? node->src[1] : node->src[0];
}
// Bytes without gaps at each place along the axis.
size_t put_bytes(const ggml_tensor* part, int64_t axis);

}  // namespace flux2::own
