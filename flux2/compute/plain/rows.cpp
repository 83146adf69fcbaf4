#include "compute/plain/rows.hpp"

#include <algorithm>
#include <numeric>

namespace flux2::own {

namespace {

void convert_row(const ggml_tensor* x, size_t offset, Row& row) {
    const char* from = static_cast<const char*>(x->data) + offset;
    const auto n = static_cast<int64_t>(row.size());
    switch (x->type) {
        case GGML_TYPE_BF16:
            ggml_bf16_to_fp32_row(reinterpret_cast<const ggml_bf16_t*>(from), row.data(), n);
            break;
        case GGML_TYPE_F16:
            ggml_fp16_to_fp32_row(reinterpret_cast<const ggml_fp16_t*>(from), row.data(), n);
            break;
        case GGML_TYPE_F32:
            std::copy_n(reinterpret_cast<const float*>(from), n, row.begin());
            break;
        default:
            ggml_get_type_traits(x->type)->to_float(from, row.data(), n);
    }
}

}  // namespace

Row read_row(const ggml_tensor* x, size_t offset, int64_t n) {
    Row row(static_cast<size_t>(n));
    convert_row(x, offset, row);
    return row;
}

RowView RowReader::read(const ggml_tensor* x, size_t offset, int64_t n) {
    if (x->type == GGML_TYPE_F32) {
        const char* values = static_cast<const char*>(x->data) + offset;
        return {reinterpret_cast<const float*>(values), static_cast<size_t>(n)};
    }
    converted_.resize(static_cast<size_t>(n));
    convert_row(x, offset, converted_);
    return converted_;
}

float dot(RowView a, RowView b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0f);
}

void write_row(ggml_tensor* y, size_t offset, const Row& row) {
    char* to = static_cast<char*>(y->data) + offset;
    const auto n = static_cast<int64_t>(row.size());
    switch (y->type) {
        case GGML_TYPE_BF16:
            ggml_fp32_to_bf16_row(row.data(), reinterpret_cast<ggml_bf16_t*>(to), n);
            break;
        case GGML_TYPE_F16:
            ggml_fp32_to_fp16_row(row.data(), reinterpret_cast<ggml_fp16_t*>(to), n);
            break;
        default:
            std::copy(row.begin(), row.end(), reinterpret_cast<float*>(to));
    }
}

}  // namespace flux2::own
