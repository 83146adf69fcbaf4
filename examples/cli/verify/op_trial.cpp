#include "verify/op_trial.hpp"

#include "formats/tensor_type.hpp"

#include <cstddef>
#include <cstring>
#include <limits>

namespace flux2::cli {
namespace {

constexpr size_t kMaxNodes = 512;

void set(ggml_tensor* tensor, const std::vector<float>& values) {
    const auto n = static_cast<int64_t>(values.size());
    std::vector<std::byte> bytes(ggml_nbytes(tensor));
    switch (tensor->type) {
        case GGML_TYPE_BF16:
            ggml_fp32_to_bf16_row(values.data(), reinterpret_cast<ggml_bf16_t*>(bytes.data()), n);
            break;
        case GGML_TYPE_F16:
            ggml_fp32_to_fp16_row(values.data(), reinterpret_cast<ggml_fp16_t*>(bytes.data()), n);
            break;
        case GGML_TYPE_F32:
            std::memcpy(bytes.data(), values.data(), bytes.size());
            break;
        default:
            from_f32(static_cast<TensorType>(tensor->type), values, tensor->ne[0], bytes);
    }
    ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
}

}  // namespace

Trial::Trial(const Backend& backend, const Form& form, RandomValues& random)
    : random_(random), graph_(backend, kMaxNodes, form) {
    graph_.set_low_rank(&pairs_);
}

ggml_tensor* Trial::input(const Shape& ne, float size, ggml_type type) {
    ggml_tensor* tensor = ggml_new_tensor(graph_, type, 4, ne.data());
    ggml_set_input(tensor);
    ggml_set_output(tensor);
    inputs_.emplace_back(tensor, random_.get(inputs_.size() + 1, ggml_nelements(tensor), size));
    return tensor;
}

ggml_tensor* Trial::positions(int64_t n, int32_t step) {
    ggml_tensor* tensor = graph_.input_i32("positions", {n});
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; ++i) {
        ids.push_back(i * step % 4096);
    }
    positions_.emplace_back(tensor, std::move(ids));
    return tensor;
}

ggml_tensor* Trial::mask(int64_t n, int64_t n_real) {
    ggml_tensor* tensor = input({n, n, 1, 1});
    std::vector<float>& values = inputs_.back().second;
    for (int64_t i = 0; i < n * n; ++i) {
        const bool seen = i % n <= i / n && i % n < n_real;
        values[static_cast<size_t>(i)] = seen ? 0.0f : -std::numeric_limits<float>::infinity();
    }
    return tensor;
}

ggml_tensor* Trial::quantised_with_pair(ggml_type type, int64_t n_in, int64_t n_out, int64_t rank) {
    const Form& form = graph_.form();
    ggml_tensor* w = input({n_in, n_out, 1, 1}, 0.05f, type);
    ggml_tensor* down = input({n_in, rank, 1, 1}, 0.05f, GGML_TYPE_BF16);
    ggml_tensor* up = input({rank, n_out, 1, 1}, 0.05f, GGML_TYPE_BF16);
    w = form.unpacks ? w : ggml_cast(graph_, w, GGML_TYPE_F32);
    if (form.operations == Operations::cpu) {
        pairs_[w] = {.down = panels(down), .up = panels(up), .in_panels = true};
    } else {
        pairs_[w] = {.down = down, .up = up, .joins_unpacked = form.spare_columns > 0};
    }
    return w;
}

ggml_tensor* Trial::matrix_with_pair(int64_t n_in, int64_t n_out, int64_t rank) {
    ggml_tensor* w = input({n_in + rank, n_out, 1, 1}, 0.05f, GGML_TYPE_BF16);
    ggml_tensor* down = input({n_in, rank, 1, 1}, 0.05f, GGML_TYPE_BF16);
    ggml_tensor* up = ggml_view_2d(graph_, w, rank, n_out, w->nb[1], ggml_row_size(w->type, n_in));
    if (graph_.form().operations == Operations::cpu) {
        pairs_[w] = {.down = panels(down), .up = panels(up), .in_panels = true};
    } else {
        pairs_[w] = {.down = down, .up = graph_.form().spare_columns > 0 ? nullptr : up};
    }
    return w;
}

FeatureMap Trial::feature_map(const Shape& planes, float size) {
    return from_planes(graph_, input(planes, size));
}

Mod Trial::mod(int64_t width) {
    const Shape ne = {width, 1, 1, 1};
    return {input(ne), input(ne), input(ne)};
}

HostTensor Trial::compute(ggml_tensor* result) {
    ggml_tensor* output =
        result->type == GGML_TYPE_F32 ? result : ggml_cast(graph_, result, GGML_TYPE_F32);
    output = ggml_is_contiguous(output) ? output : ggml_cont(graph_, output);
    graph_.finish(output);
    for (const auto& [tensor, values] : inputs_) {
        if (tensor->buffer != nullptr) {  // null when the operation does not use it
            set(tensor, values);
        }
    }
    for (const auto& [tensor, ids] : positions_) {
        graph_.set(tensor, ids);
    }
    graph_.compute();
    return graph_.read(output);
}

// [in, out] -> [16, in, out / 16] in F32
ggml_tensor* Trial::panels(ggml_tensor* matrix) {
    ggml_tensor* values = ggml_cast(graph_, matrix, GGML_TYPE_F32);
    values = ggml_reshape_3d(graph_, values, matrix->ne[0], 16, matrix->ne[1] / 16);
    return ggml_cont(graph_, ggml_permute(graph_, values, 1, 0, 2, 3));
}

}  // namespace flux2::cli
