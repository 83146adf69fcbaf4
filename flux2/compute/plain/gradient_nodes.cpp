#include "compute/plain/gradient_nodes.hpp"

#include "compute/plain/rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace flux2::own {
namespace {

constexpr float kEps = 1e-6f;  // of modulate()

// Where value `first` of row i lies.
size_t value_offset(const ggml_tensor* x, int64_t i, int64_t first) {
    return row_offset(x, i) + bytes_at(first, ggml_type_size(x->type));
}

// Values [first, first + n) of row i.
Row part_of(const ggml_tensor* x, int64_t i, int64_t first, int64_t n) {
    return read_row(x, value_offset(x, i, first), n);
}

void write_part(ggml_tensor* y, int64_t i, int64_t first, const Row& values) {
    write_row(y, value_offset(y, i, first), values);
}

void plain_add_linear(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor* w = y->src[1];
    const bool transposed = params_of<LinearParams>(y).transposed;
    share(y->ne[1], ith, nth, [&](int64_t i) {
        RowReader reader;
        const Row x = row_of(y->src[2], i);
        Row sum = row_of(y->src[0], i);
        for (int64_t j = 0; j < w->ne[1]; ++j) {
            const RowView weights = reader.row(w, j);
            if (!transposed) {
                sum[static_cast<size_t>(j)] += dot(weights, x);
                continue;
            }
            for (size_t k = 0; k < sum.size(); ++k) {
                sum[k] += weights[k] * x[static_cast<size_t>(j)];
            }
        }
        set_row(y, i, sum);
    });
}

void plain_outer_product(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor *u = y->src[0], *v = y->src[1];
    share(y->ne[1], ith, nth, [&](int64_t j) {
        RowReader factors;
        RowReader rows;
        Row sum(static_cast<size_t>(y->ne[0]));
        for (int64_t i = 0; i < u->ne[1]; ++i) {
            const float factor = factors.read(v, value_offset(v, i, j), 1).front();
            const RowView row = rows.row(u, i);
            for (size_t k = 0; k < sum.size(); ++k) {
                sum[k] += factor * row[k];
            }
        }
        set_row(y, j, sum);
    });
}

// With g = d * (1 + scale) and the normalised x: (g - mean(g) - x mean(g x)) / sigma.
void plain_modulate_gradient(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<ModulateGradientParams>(y);
    const Row scale = row_of(y->src[1], 0);
    const auto n = static_cast<float>(y->ne[0]);
    share(y->ne[1], ith, nth, [&](int64_t i) {
        Row x = row_of(y->src[0], i);
        Row g = row_of(y->src[2], i);
        const float mean = std::accumulate(x.begin(), x.end(), 0.0f) / n;
        for (float& value : x) {
            value -= mean;
        }
        const float sigma = std::sqrt(dot(x, x) / n + params.eps);
        for (size_t j = 0; j < x.size(); ++j) {
            x[j] /= sigma;
            g[j] *= 1 + scale[j];
        }
        const float mean_g = std::accumulate(g.begin(), g.end(), 0.0f) / n;
        const float mean_gx = dot(g, x) / n;
        Row result = y->src[3] != nullptr ? row_of(y->src[3], i) : Row(x.size());
        for (size_t j = 0; j < x.size(); ++j) {
            result[j] += (g[j] - mean_g - x[j] * mean_gx) / sigma;
        }
        set_row(y, i, result);
    });
}

void plain_scale_rows(ggml_tensor* y, int ith, int nth, void*) {
    const Row scale = row_of(y->src[1], 0);
    share(y->ne[1], ith, nth, [&](int64_t i) {
        Row row = row_of(y->src[0], i);
        for (size_t j = 0; j < row.size(); ++j) {
            row[j] *= scale[j];
        }
        set_row(y, i, row);
    });
}

void plain_swiglu_gradient(ggml_tensor* y, int ith, int nth, void*) {
    const bool in_place = y->src[3] != nullptr;
    const ggml_tensor* const* sources = y->src + (in_place ? 1 : 0);
    const int64_t n = sources[0]->ne[0];
    share(y->ne[1], ith, nth, [&](int64_t i) {
        const Row gate = row_of(sources[0], i);
        const Row up = row_of(sources[1], i);
        const Row d = row_of(sources[2], i);
        Row result(2 * gate.size());
        for (size_t j = 0; j < gate.size(); ++j) {
            const float sigmoid = 1 / (1 + std::exp(-gate[j]));
            result[j] = d[j] * up[j] * sigmoid * (1 + gate[j] * (1 - sigmoid));
            result[gate.size() + j] = d[j] * gate[j] * sigmoid;
        }
        write_part(y, i, y->ne[0] - 2 * n, result);
    });
}

// Of a query of attention that keeps its sums.
float log_sum_of(const ggml_tensor* kept, int64_t query, int64_t head, int64_t width) {
    const char* row = static_cast<const char*>(kept->data) + bytes_at(query, kept->nb[1]) +
                      ggml_row_size(kept->type, width);
    float result = 0;
    std::memcpy(&result, row + bytes_at(head, sizeof(float)), sizeof(result));
    return result;
}

// The weight of each key for a query, and the derivative of the loss by their scores times the
// factor of the scores.
struct Weights {
    Row weights, d_scores;
};

Weights weights_of(const ggml_tensor* node, int64_t head, int64_t query) {
    const ggml_tensor *q = node->src[0], *k = node->src[1], *v = node->src[2];
    const ggml_tensor *kept = node->src[3], *d = node->src[4];
    const int64_t head_dim = q->ne[0];
    const float factor = 1 / std::sqrt(static_cast<float>(head_dim));
    const Row vector = row_of(q, head, query);
    const Row gradient = part_of(d, query, head * head_dim, head_dim);
    const float log_sum = log_sum_of(kept, query, head, head_dim * q->ne[1]);
    const float inner = dot(gradient, part_of(kept, query, head * head_dim, head_dim));
    RowReader reader;
    Weights result;
    for (int64_t j = 0; j < k->ne[2]; ++j) {
        const float weight = std::exp(dot(vector, reader.row(k, head, j)) * factor - log_sum);
        result.weights.push_back(weight);
        result.d_scores.push_back(weight * (dot(gradient, reader.row(v, head, j)) - inner) *
                                  factor);
    }
    return result;
}

void add_scaled(Row& sum, float factor, RowView x) {
    for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += factor * x[i];
    }
}

void plain_query_gradient(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor *q = y->src[0], *k = y->src[1];
    const int64_t head_dim = q->ne[0];
    share(q->ne[1] * q->ne[2], ith, nth, [&](int64_t i) {
        const int64_t head = i % q->ne[1];
        const int64_t query = i / q->ne[1];
        const Weights weights = weights_of(y, head, query);
        RowReader reader;
        Row sum(static_cast<size_t>(head_dim));
        for (int64_t j = 0; j < k->ne[2]; ++j) {
            add_scaled(sum, weights.d_scores[static_cast<size_t>(j)], reader.row(k, head, j));
        }
        write_part(y, query, head * head_dim, sum);
    });
}

void plain_key_gradient(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor *q = y->src[0], *d = y->src[4];
    const int64_t head_dim = q->ne[0];
    const int64_t n = q->ne[2];
    share(q->ne[1], ith, nth, [&](int64_t head) {
        std::vector<Row> dk(static_cast<size_t>(n), Row(static_cast<size_t>(head_dim)));
        std::vector<Row> dv = dk;
        for (int64_t query = 0; query < n; ++query) {
            const Weights weights = weights_of(y, head, query);
            const Row vector = row_of(q, head, query);
            const Row gradient = part_of(d, query, head * head_dim, head_dim);
            for (size_t j = 0; j < dk.size(); ++j) {
                add_scaled(dk[j], weights.d_scores[j], vector);
                add_scaled(dv[j], weights.weights[j], gradient);
            }
        }
        for (int64_t key = 0; key < n; ++key) {
            const int64_t width = head_dim * q->ne[1];
            const auto i = static_cast<size_t>(key);
            write_part(y, key, head * head_dim, dk[i]);
            write_part(y, key, width + head * head_dim, dv[i]);
        }
    });
}

// Of one head: back through the rotation, then through the RMS norm.
Row head_gradient(const Row& x, const Row& norm, const Row& table, Row d, float eps) {
    for (size_t i = 0; i + 1 < d.size(); i += 2) {
        const float a = d[i];
        const float b = d[i + 1];
        d[i] = a * table[i] + b * table[i + 1];
        d[i + 1] = b * table[i] - a * table[i + 1];
    }
    const auto n = static_cast<float>(x.size());
    const float size = std::sqrt(dot(x, x) / n + eps);
    float mean = 0;
    for (size_t i = 0; i < d.size(); ++i) {
        d[i] *= norm[i];
        mean += d[i] * x[i] / size / n;
    }
    for (size_t i = 0; i < d.size(); ++i) {
        d[i] = (d[i] - x[i] / size * mean) / size;
    }
    return d;
}

void plain_heads_gradient(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<HeadsGradientParams>(y);
    const ggml_tensor *dq = y->src[0], *dkv = y->src[1], *projection = y->src[2];
    const int64_t width = dq->ne[0];
    const int64_t head_dim = y->src[3]->ne[0];
    share(y->ne[1], ith, nth, [&](int64_t i) {
        const int64_t token = params.first + i;
        const Row table = row_of(y->src[5], token);
        for (int64_t first = 0; first < 2 * width; first += head_dim) {
            const bool is_query = first < width;
            const Row d = is_query ? part_of(dq, token, first, head_dim)
                                   : part_of(dkv, token, first - width, head_dim);
            const Row norm = row_of(y->src[is_query ? 3 : 4], 0);
            write_part(
                y, i, first,
                head_gradient(part_of(projection, i, first, head_dim), norm, table, d, params.eps));
        }
        write_part(y, i, 2 * width, part_of(dkv, token, width, width));
    });
}

}  // namespace

const OwnOperation kAddLinear = {"add linear", plain_add_linear};
const OwnOperation kOuterProduct = {"outer product", plain_outer_product};
const OwnOperation kScaleRows = {"scale rows", plain_scale_rows};
const OwnOperation kModulateGradient = {"modulate gradient", plain_modulate_gradient};
const OwnOperation kSwigluGradient = {"swiglu gradient", plain_swiglu_gradient};
const OwnOperation kQueryGradient = {"query gradient", plain_query_gradient};
const OwnOperation kKeyGradient = {"key gradient", plain_key_gradient};
const OwnOperation kHeadsGradient = {"heads gradient", plain_heads_gradient};

ggml_tensor* add_linear(Graph& g, ggml_tensor* y, ggml_tensor* w, ggml_tensor* x,
                        ggml_custom_op_t function, const LinearParams& params) {
    return own_node(
        g, {kAddLinear, {.function = function, .in_place = true}, {y->ne[0], y->ne[1], 1, 1}},
        {y, w, x}, params);
}

ggml_tensor* outer_product(Graph& g, ggml_tensor* u, ggml_tensor* v, const NodeForm& form) {
    return own_node(g, {kOuterProduct, form, {u->ne[0], v->ne[0], 1, 1}}, {u, v});
}

ggml_tensor* scale_rows(Graph& g, ggml_tensor* x, ggml_tensor* scale, const NodeForm& form) {
    return own_node(g, {kScaleRows, form, {x->ne[0], x->ne[1], 1, 1}}, {x, scale});
}

ggml_tensor* modulate_gradient(Graph& g, ggml_tensor* x, ggml_tensor* scale, ggml_tensor* d,
                               ggml_tensor* before, const NodeForm& form) {
    return own_node(g, {kModulateGradient, form, {x->ne[0], x->ne[1], 1, 1}}, {x, scale, d, before},
                    ModulateGradientParams{kEps});
}

ggml_tensor* swiglu_gradient(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* d,
                             ggml_tensor* into, const NodeForm& form) {
    NodeForm used = form;
    used.in_place = into != nullptr;
    return own_node(g, {kSwigluGradient, used, {2 * gate->ne[0], gate->ne[1], 1, 1}},
                    {into, gate, up, d});
}

ggml_tensor* query_gradient(Graph& g, const AttentionGradientInput& in, const NodeForm& form,
                            const PackedForGradient& packed) {
    return own_node(g, {kQueryGradient, form, {in.d->ne[0], in.d->ne[1], 1, 1}},
                    {in.q, packed.k != nullptr ? packed.k : in.k,
                     packed.v != nullptr ? packed.v : in.v, in.kept, in.d, packed.k_channels});
}

ggml_tensor* key_gradient(Graph& g, const AttentionGradientInput& in, const NodeForm& form,
                          const PackedForGradient& packed) {
    return own_node(g, {kKeyGradient, form, {2 * in.d->ne[0], in.d->ne[1], 1, 1}},
                    {packed.q != nullptr ? packed.q : in.q, in.k, in.v, in.kept, in.d, packed.d,
                     packed.q_channels, packed.d_channels});
}

ggml_tensor* heads_gradient(Graph& g, const HeadsGradientInput& in, float eps,
                            const NodeForm& form) {
    return own_node(g, {kHeadsGradient, form, {in.projection->ne[0], in.projection->ne[1], 1, 1}},
                    {in.dq, in.dkv, in.projection, in.q_norm, in.k_norm, in.table},
                    HeadsGradientParams{.first = in.first, .eps = eps});
}

}  // namespace flux2::own
