#include "compute/plain/picture_nodes.hpp"

#include "compute/plain/rows.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace flux2::own {
namespace {

constexpr int64_t kGroups = 32;
constexpr float kEps = 1e-6f;

int64_t in_eights(int64_t channels) {
    return (channels + 7) / 8 * 8;
}

// The channels of pixel (column, row) of x [channels, w, h].
Row pixel(const ggml_tensor* x, int64_t column, int64_t row) {
    return read_row(x, bytes_at(column, x->nb[1]) + bytes_at(row, x->nb[2]), x->ne[0]);
}

void set_pixel(ggml_tensor* y, int64_t column, int64_t row, const Row& channels) {
    write_row(y, bytes_at(column, y->nb[1]) + bytes_at(row, y->nb[2]), channels);
}

void scale_row(Row& row, float factor) {
    for (float& value : row) {
        value *= factor;
    }
}

float plane_value(const ggml_tensor* planes, int64_t x, int64_t y, int64_t channel) {
    return static_cast<const float*>(
        planes->data)[(channel * planes->ne[1] + y) * planes->ne[0] + x];
}

}  // namespace

ggml_tensor* planes_to_half(Graph& g, ggml_tensor* planes) {
    const auto* ne = planes->ne;
    return own_node(g, {"planes to half", GGML_TYPE_F16, {in_eights(ne[2]), ne[0], ne[1], 1}},
                    {planes}, planes_to_half_on_cpu, 0);
}

void planes_to_half_on_cpu(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor* planes = y->src[0];
    share(y->ne[2], ith, nth, [&](int64_t row) {
        for (int64_t column = 0; column < y->ne[1]; ++column) {
            Row channels(static_cast<size_t>(y->ne[0]));
            for (int64_t c = 0; c < planes->ne[2]; ++c) {
                channels[static_cast<size_t>(c)] = plane_value(planes, column, row, c) * kHalfScale;
            }
            set_pixel(y, column, row, channels);
        }
    });
}

ggml_tensor* pixels_to_planes(Graph& g, ggml_tensor* x) {
    return own_node(g, {"pixels to planes", GGML_TYPE_F32, {x->ne[1], x->ne[2], x->ne[0], 1}}, {x},
                    pixels_to_planes_on_cpu, 0);
}

void pixels_to_planes_on_cpu(ggml_tensor* y, int ith, int nth, void*) {
    auto* values = static_cast<float*>(y->data);
    share(y->ne[1], ith, nth, [&](int64_t row) {
        for (int64_t column = 0; column < y->ne[0]; ++column) {
            const Row channels = pixel(y->src[0], column, row);
            for (int64_t c = 0; c < y->ne[2]; ++c) {
                values[(c * y->ne[1] + row) * y->ne[0] + column] = channels[static_cast<size_t>(c)];
            }
        }
    });
}

ggml_tensor* to_half(Graph& g, ggml_tensor* x) {
    return own_node(g, {"to half", GGML_TYPE_F16, {x->ne[0], x->ne[1], x->ne[2], 1}}, {x},
                    to_half_on_cpu, 0);
}

void to_half_on_cpu(ggml_tensor* y, int ith, int nth, void*) {
    share(y->ne[2], ith, nth, [&](int64_t row) {
        for (int64_t column = 0; column < y->ne[1]; ++column) {
            Row channels = pixel(y->src[0], column, row);
            scale_row(channels, kHalfScale);
            set_pixel(y, column, row, channels);
        }
    });
}

ggml_tensor* pack_kernel(Graph& g, ggml_tensor* kernel) {
    const auto* ne = kernel->ne;
    return own_node(g, {"pack kernel", GGML_TYPE_F16, {in_eights(ne[2]), ne[3], ne[0] * ne[1], 1}},
                    {kernel}, pack_kernel_on_cpu, 0);
}

void pack_kernel_on_cpu(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor* kernel = y->src[0];
    const int64_t n_taps = y->ne[2];
    share(y->ne[1], ith, nth, [&](int64_t out) {
        const Row weights = read_row(kernel, bytes_at(out, kernel->nb[3]), n_taps * kernel->ne[2]);
        for (int64_t tap = 0; tap < n_taps; ++tap) {
            Row row(static_cast<size_t>(y->ne[0]));
            for (int64_t in = 0; in < kernel->ne[2]; ++in) {
                row[static_cast<size_t>(in)] = weights[static_cast<size_t>(in * n_taps + tap)];
            }
            set_pixel(y, out, tap, row);
        }
    });
}

ggml_tensor* conv(Graph& g, ggml_tensor* kernel, ggml_tensor* bias, ggml_tensor* x,
                  ggml_tensor* skip, const ConvParams& params) {
    const int64_t w = x->ne[1] * params.scale / params.stride;
    const int64_t h = x->ne[2] * params.scale / params.stride;
    return own_node(g, {"conv", GGML_TYPE_F32, {bias->ne[0], w, h, 1}},
                    {x, pack_kernel(g, kernel), bias, skip}, conv_on_cpu, params);
}

namespace {

// Adds what a tap of the kernel sees to the channels of a result. w [in, out]
void add_tap(Row& sums, const ggml_tensor* packed, int64_t tap, const Row& seen) {
    for (size_t out = 0; out < sums.size(); ++out) {
        const Row weights = pixel(packed, static_cast<int64_t>(out), tap);
        for (size_t in = 0; in < seen.size(); ++in) {
            sums[out] += weights[in] * seen[in] / kHalfScale;
        }
    }
}

}  // namespace

void conv_on_cpu(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<ConvParams>(y);
    const ggml_tensor* x = y->src[0];
    const int64_t before = params.kernel == 3 && params.stride == 1 ? 1 : 0;  // zeros left and top
    share(y->ne[1] * y->ne[2], ith, nth, [&](int64_t i) {
        const int64_t column = i % y->ne[1];
        const int64_t row = i / y->ne[1];
        Row sums = row_of(y->src[2], 0);
        for (int64_t tap = 0; tap < params.kernel * params.kernel; ++tap) {
            const int64_t from_x = column * params.stride + tap % params.kernel - before;
            const int64_t from_y = row * params.stride + tap / params.kernel - before;
            if (from_x >= 0 && from_x < x->ne[1] * params.scale && from_y >= 0 &&
                from_y < x->ne[2] * params.scale) {
                add_tap(sums, y->src[1], tap,
                        pixel(x, from_x / params.scale, from_y / params.scale));
            }
        }
        if (y->src[3] != nullptr) {
            const Row skip = pixel(y->src[3], column, row);
            std::transform(sums.begin(), sums.end(), skip.begin(), sums.begin(), std::plus<>());
        }
        set_pixel(y, column, row, sums);
    });
}

ggml_tensor* group_norm(Graph& g, ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* x,
                        bool silu) {
    return own_node(g, {"group norm", GGML_TYPE_F16, {x->ne[0], x->ne[1], x->ne[2], 1}},
                    {x, weight, bias}, group_norm_on_cpu, GroupNormParams{silu});
}

namespace {

// Mean and deviation of a group's channels [first, first + n) over all pixels.
std::pair<float, float> moments(const ggml_tensor* x, int64_t first, int64_t n) {
    const auto* values = static_cast<const float*>(x->data);
    const int64_t n_pixels = x->ne[1] * x->ne[2];
    const auto mean_of = [&](const auto& f) {
        double sum = 0;
        for (int64_t i = 0; i < n_pixels * n; ++i) {
            sum += f(static_cast<double>(values[i / n * x->ne[0] + first + i % n]));
        }
        return sum / static_cast<double>(n_pixels * n);
    };
    const double mean = mean_of([](double v) { return v; });
    const double variance = mean_of([&](double v) { return (v - mean) * (v - mean); });
    return {static_cast<float>(mean),
            static_cast<float>(std::sqrt(variance + static_cast<double>(kEps)))};
}

}  // namespace

void group_norm_on_cpu(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor* x = y->src[0];
    const bool silu = params_of<GroupNormParams>(y).silu;
    const Row weight = row_of(y->src[1], 0);
    const Row bias = row_of(y->src[2], 0);
    const int64_t n = x->ne[0] / kGroups;  // channels of a group
    share(kGroups, ith, nth, [&](int64_t group) {
        const auto [mean, deviation] = moments(x, group * n, n);
        for (int64_t i = 0; i < x->ne[1] * x->ne[2] * n; ++i) {
            const int64_t channel = group * n + i % n;
            const int64_t at = i / n * x->ne[0] + channel;
            const auto c = static_cast<size_t>(channel);
            float value = static_cast<const float*>(x->data)[at];
            value = (value - mean) / deviation * weight[c] + bias[c];
            value = silu ? value / (1 + std::exp(-value)) : value;
            static_cast<ggml_fp16_t*>(y->data)[at] = ggml_fp32_to_fp16(value * kHalfScale);
        }
    });
}

ggml_tensor* softmax(Graph& g, ggml_tensor* scores, const SoftmaxParams& params) {
    return own_node(g, {"softmax", GGML_TYPE_F16, {scores->ne[0], scores->ne[1], 1, 1}}, {scores},
                    softmax_on_cpu, params);
}

void softmax_on_cpu(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<SoftmaxParams>(y);
    share(y->ne[1], ith, nth, [&](int64_t i) {
        Row row = row_of(y->src[0], i);
        const float highest = *std::max_element(row.begin(), row.end());
        float sum = 0;
        for (float& value : row) {
            value = std::exp((value - highest) * params.factor);
            sum += value;
        }
        scale_row(row, params.gain / sum);
        set_row(y, i, row);
    });
}

}  // namespace flux2::own
