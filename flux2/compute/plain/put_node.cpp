#include "compute/plain/put_node.hpp"

#include "base/check.hpp"
#include "compute/plain/rows.hpp"

#include <array>
#include <cstring>

namespace flux2::own {
namespace {

void plain_put(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<PutParams>(y);
    const ggml_tensor* x = put_part(y);
    share(x->ne[params.axis], ith, nth, [&](int64_t i) {
        std::memcpy(static_cast<char*>(y->data) + bytes_at(params.first + i, y->nb[params.axis]),
                    static_cast<const char*>(x->data) + bytes_at(i, x->nb[params.axis]),
                    put_bytes(x, params.axis));
    });
}

}  // namespace

const OwnOperation kPut = {"put", plain_put};

size_t put_bytes(const ggml_tensor* part, int64_t axis) {
    return axis == 1 ? ggml_row_size(part->type, part->ne[0]) : part->nb[axis];
}

ggml_tensor* begin_put(Graph& g, ggml_tensor* part, int64_t n, const PutParams& params,
                       int64_t spare_columns) {
    std::array<int64_t, 4> ne = {part->ne[0], part->ne[1], part->ne[2], part->ne[3]};
    ne[static_cast<size_t>(params.axis)] = n;
    return own_node(g, {kPut, {.type = part->type, .spare_columns = spare_columns}, ne}, {part},
                    params);
}

ggml_tensor* put(Graph& g, ggml_tensor* to, ggml_tensor* part, const PutParams& params) {
    check(part->type == to->type && part->ne[0] == to->ne[0] &&
              params.first + part->ne[params.axis] <= to->ne[params.axis],
          ErrorKind::internal, "a part of another type or size cannot be put into ", to->name);
    const std::array<int64_t, 4> ne = {to->ne[0], to->ne[1], to->ne[2], to->ne[3]};
    return own_node(g, {kPut, {.type = to->type, .in_place = true}, ne}, {to, part}, params);
}

}  // namespace flux2::own
