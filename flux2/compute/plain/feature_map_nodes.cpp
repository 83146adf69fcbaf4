#include "compute/plain/feature_map_nodes.hpp"

#include "compute/plain/rows.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace flux2::own {
namespace {

int64_t in_eights(int64_t channels) {
    return (channels + 7) / 8 * 8;
}

// The channels of pixel (column, row) of y [channels, w, h]; they are a row of it.
void set_pixel(ggml_tensor* y, int64_t column, int64_t row, const Row& channels) {
    write_row(y, row_offset(y, column, row), channels);
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

void plain_planes_to_half(ggml_tensor* y, int ith, int nth, void*) {
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

void plain_pixels_to_planes(ggml_tensor* y, int ith, int nth, void*) {
    auto* values = static_cast<float*>(y->data);
    share(y->ne[1], ith, nth, [&](int64_t row) {
        for (int64_t column = 0; column < y->ne[0]; ++column) {
            const Row channels = row_of(y->src[0], column, row);
            for (int64_t c = 0; c < y->ne[2]; ++c) {
                values[(c * y->ne[1] + row) * y->ne[0] + column] = channels[static_cast<size_t>(c)];
            }
        }
    });
}

void plain_to_half(ggml_tensor* y, int ith, int nth, void*) {
    share(y->ne[2], ith, nth, [&](int64_t row) {
        for (int64_t column = 0; column < y->ne[1]; ++column) {
            Row channels = row_of(y->src[0], column, row);
            scale_row(channels, kHalfScale);
            set_pixel(y, column, row, channels);
        }
    });
}

void plain_pack_filter(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor* filter = y->src[0];
    const int64_t n_taps = y->ne[2];
    share(y->ne[1], ith, nth, [&](int64_t out) {
        const Row weights = read_row(filter, bytes_at(out, filter->nb[3]), n_taps * filter->ne[2]);
        for (int64_t tap = 0; tap < n_taps; ++tap) {
            Row row(static_cast<size_t>(y->ne[0]));
            for (int64_t in = 0; in < filter->ne[2]; ++in) {
                row[static_cast<size_t>(in)] = weights[static_cast<size_t>(in * n_taps + tap)];
            }
            set_pixel(y, out, tap, row);
        }
    });
}

// The weights of a packed filter by tap, then by output channel.
std::vector<std::vector<Row>> taps_of(const ggml_tensor* packed, size_t n_out) {
    std::vector<std::vector<Row>> taps(static_cast<size_t>(packed->ne[2]));
    for (size_t tap = 0; tap < taps.size(); ++tap) {
        for (size_t out = 0; out < n_out; ++out) {
            taps[tap].push_back(
                row_of(packed, static_cast<int64_t>(out), static_cast<int64_t>(tap)));
        }
    }
    return taps;
}

// Adds what a tap of the filter sees to the channels of a result.
void add_tap(Row& sums, const std::vector<Row>& weights, RowView seen) {
    for (size_t out = 0; out < sums.size(); ++out) {
        const Row& of_channel = weights[out];
        for (size_t in = 0; in < seen.size(); ++in) {
            sums[out] += of_channel[in] * seen[in] / kHalfScale;
        }
    }
}

void plain_conv(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<ConvParams>(y);
    const ggml_tensor* x = y->src[0];
    const int64_t before = params.size == 3 && params.stride == 1 ? 1 : 0;  // zeros left and top
    const auto taps = taps_of(y->src[1], static_cast<size_t>(y->src[2]->ne[0]));
    share(y->ne[1] * y->ne[2], ith, nth, [&](int64_t i) {
        const int64_t column = i % y->ne[1];
        const int64_t row = i / y->ne[1];
        RowReader reader;
        Row sums = row_of(y->src[2], 0);
        for (int64_t tap = 0; tap < params.size * params.size; ++tap) {
            const int64_t from_x = column * params.stride + tap % params.size - before;
            const int64_t from_y = row * params.stride + tap / params.size - before;
            if (from_x >= 0 && from_x < x->ne[1] * params.scale && from_y >= 0 &&
                from_y < x->ne[2] * params.scale) {
                add_tap(sums, taps[static_cast<size_t>(tap)],
                        reader.row(x, from_x / params.scale, from_y / params.scale));
            }
        }
        if (y->src[3] != nullptr) {
            Row skip = row_of(y->src[3], column, row);
            scale_row(skip, y->src[3]->type == GGML_TYPE_F16 ? 1 / kHalfScale : 1);
            std::transform(sums.begin(), sums.end(), skip.begin(), sums.begin(), std::plus<>());
        }
        scale_row(sums, y->type == GGML_TYPE_F16 ? kHalfScale : 1);
        set_pixel(y, column, row, sums);
    });
}

// A value of a feature map in F32, or in F16 times kHalfScale.
float map_value(const ggml_tensor* x, int64_t at) {
    return x->type == GGML_TYPE_F16
               ? ggml_fp16_to_fp32(static_cast<const ggml_fp16_t*>(x->data)[at]) / kHalfScale
               : static_cast<const float*>(x->data)[at];
}

// Mean and sum of squared distances from it.
struct Moments {
    double mean, squares;
};

// Of a group's channels [first, first + n) over all pixels.
Moments moments_of(const ggml_tensor* x, int64_t first, int64_t n) {
    const int64_t n_values = x->ne[1] * x->ne[2] * n;
    const auto sum_of = [&](const auto& f) {
        double sum = 0;
        for (int64_t i = 0; i < n_values; ++i) {
            sum += f(static_cast<double>(map_value(x, i / n * x->ne[0] + first + i % n)));
        }
        return sum;
    };
    const double mean = sum_of([](double v) { return v; }) / static_cast<double>(n_values);
    return {mean, sum_of([&](double v) { return (v - mean) * (v - mean); })};
}

void plain_moments(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor* x = y->src[0];
    const int64_t n = x->ne[0] / kNormGroups;
    auto* values = static_cast<double*>(y->data);
    share(kNormGroups, ith, nth, [&](int64_t group) {
        const Moments moments = moments_of(x, group * n, n);
        values[group] = moments.mean;
        values[kNormGroups + group] = moments.squares;
    });
}

// Those of a group over the bands that params describes; n channels are in a group.
Moments join_bands(const ggml_tensor* bands, const GroupNormParams& params, int64_t group,
                   int64_t n) {
    const auto each = [&](const auto& f) {
        double sum = 0;
        for (int64_t band = 0; band < bands->ne[2]; ++band) {
            const double* values = static_cast<const double*>(bands->data) + band * 2 * kNormGroups;
            const int64_t pixels =
                std::min(params.band_pixels, params.n_pixels - band * params.band_pixels);
            sum += f(static_cast<double>(pixels * n), values[group], values[kNormGroups + group]);
        }
        return sum;
    };
    const double mean = each([](double count, double part, double) { return count * part; }) /
                        static_cast<double>(params.n_pixels * n);
    return {mean, each([&](double count, double part, double squares) {
                return squares + count * (part - mean) * (part - mean);
            })};
}

void plain_group_norm(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor* x = y->src[0];
    const auto params = params_of<GroupNormParams>(y);
    const Row weight = row_of(y->src[1], 0);
    const Row bias = row_of(y->src[2], 0);
    const int64_t n = x->ne[0] / kNormGroups;  // channels of a group
    share(kNormGroups, ith, nth, [&](int64_t group) {
        const ggml_tensor* bands = y->src[3];
        const Moments moments =
            bands != nullptr ? join_bands(bands, params, group, n) : moments_of(x, group * n, n);
        const int64_t n_pixels = bands != nullptr ? params.n_pixels : x->ne[1] * x->ne[2];
        const double variance = moments.squares / static_cast<double>(n_pixels * n);
        const auto mean = static_cast<float>(moments.mean);
        const auto deviation =
            static_cast<float>(std::sqrt(variance + static_cast<double>(kNormEps)));
        for (int64_t i = 0; i < x->ne[1] * x->ne[2] * n; ++i) {
            const int64_t channel = group * n + i % n;
            const int64_t at = i / n * x->ne[0] + channel;
            const auto c = static_cast<size_t>(channel);
            float value = map_value(x, at);
            value = (value - mean) / deviation * weight[c] + bias[c];
            value = params.silu ? value / (1 + std::exp(-value)) : value;
            static_cast<ggml_fp16_t*>(y->data)[at] = ggml_fp32_to_fp16(value * kHalfScale);
        }
    });
}

void plain_softmax(ggml_tensor* y, int ith, int nth, void*) {
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

}  // namespace

const OwnOperation kPlanesToHalf = {"planes to half", plain_planes_to_half};
const OwnOperation kPixelsToPlanes = {"pixels to planes", plain_pixels_to_planes};
const OwnOperation kToHalf = {"to half", plain_to_half};
const OwnOperation kPackFilter = {"pack filter", plain_pack_filter};
const OwnOperation kConv = {"conv", plain_conv};
const OwnOperation kMoments = {"moments", plain_moments};
const OwnOperation kGroupNorm = {"group norm", plain_group_norm};
const OwnOperation kSoftmax = {"softmax", plain_softmax};

ggml_tensor* planes_to_half(Graph& g, ggml_tensor* planes) {
    const auto* ne = planes->ne;
    return own_node(g, {kPlanesToHalf, {GGML_TYPE_F16}, {in_eights(ne[2]), ne[0], ne[1], 1}},
                    {planes});
}

ggml_tensor* pixels_to_planes(Graph& g, ggml_tensor* x) {
    return own_node(g, {kPixelsToPlanes, {}, {x->ne[1], x->ne[2], x->ne[0], 1}}, {x});
}

ggml_tensor* to_half(Graph& g, ggml_tensor* x) {
    return own_node(g, {kToHalf, {GGML_TYPE_F16}, {x->ne[0], x->ne[1], x->ne[2], 1}}, {x});
}

ggml_tensor* pack_filter(Graph& g, ggml_tensor* filter) {
    const auto* ne = filter->ne;
    return own_node(g, {kPackFilter, {GGML_TYPE_F16}, {in_eights(ne[2]), ne[3], ne[0] * ne[1], 1}},
                    {filter});
}

ggml_tensor* conv(Graph& g, const ConvInput& in, const ConvParams& params, const NodeForm& form) {
    const int64_t w = in.x->ne[1] * params.scale / params.stride;
    const int64_t h = in.x->ne[2] * params.scale / params.stride;
    return own_node(g, {kConv, form, {in.bias->ne[0], w, h, 1}},
                    {in.x, in.packed_filter, in.bias, in.skip}, params);
}

ggml_tensor* moments(Graph& g, ggml_tensor* x, const MomentsParams& params) {
    return own_node(g, {kMoments, {GGML_TYPE_F64}, {kNormGroups, 2, 1, 1}}, {x}, params);
}

ggml_tensor* group_norm(Graph& g, const GroupNormInput& in, const GroupNormParams& params,
                        const NodeForm& form) {
    const auto* ne = in.x->ne;
    return own_node(g, {kGroupNorm, form, {ne[0], ne[1], ne[2], 1}},
                    {in.x, in.weight, in.bias, in.moments}, params);
}

ggml_tensor* softmax(Graph& g, ggml_tensor* scores, const SoftmaxParams& params) {
    return own_node(g, {kSoftmax, {GGML_TYPE_F16}, {scores->ne[0], scores->ne[1], 1, 1}}, {scores},
                    params);
}

}  // namespace flux2::own
