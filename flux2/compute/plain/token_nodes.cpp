#include "compute/plain/token_nodes.hpp"

#include "base/check.hpp"
#include "compute/plain/rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace flux2::own {
namespace {

float root_mean_square(const Row& x, float eps) {
    return std::sqrt(dot(x, x) / static_cast<float>(x.size()) + eps);
}

void plain_linear(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor* w = y->src[0];
    const ggml_tensor* down = y->src[2];
    const auto params = params_of<LinearParams>(y);
    share(y->ne[1], ith, nth, [&](int64_t i) {
        RowReader reader;
        Row in = row_of(y->src[1], i);
        if (down != nullptr) {
            const Row x = in;
            for (int64_t j = 0; j < down->ne[1]; ++j) {
                in.push_back(dot(reader.row(down, j), x));
            }
        }
        Row out(static_cast<size_t>(y->ne[0]));
        for (int64_t j = 0; j < w->ne[1]; ++j) {
            const RowView weights = reader.row(w, j);
            if (!params.transposed) {
                out[static_cast<size_t>(j)] = params.factor * dot(weights, in);
                continue;
            }
            for (size_t k = 0; k < out.size(); ++k) {
                out[k] += params.factor * weights[k] * in[static_cast<size_t>(j)];
            }
        }
        set_row(y, i, out);
    });
}

void plain_unpack(ggml_tensor* y, int ith, int nth, void*) {
    share(y->ne[1], ith, nth, [&](int64_t i) {
        Row row = row_of(y->src[0], i);
        if (y->src[1] != nullptr) {
            const Row after = row_of(y->src[1], i);
            row.insert(row.end(), after.begin(), after.end());
        }
        set_row(y, i, row);
    });
}

void plain_add_pair(ggml_tensor* y, int ith, int nth, void*) {
    const ggml_tensor *down = y->src[2], *up = y->src[3];
    share(y->ne[1], ith, nth, [&](int64_t i) {
        RowReader reader;
        const Row x = row_of(y->src[1], i);
        Row inner;
        for (int64_t j = 0; j < down->ne[1]; ++j) {
            inner.push_back(dot(reader.row(down, j), x));
        }
        Row out = row_of(y->src[0], i);
        for (int64_t j = 0; j < up->ne[1]; ++j) {
            out[static_cast<size_t>(j)] += dot(reader.row(up, j), inner);
        }
        set_row(y, i, out);
    });
}

void plain_norm(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<NormParams>(y);
    share(y->ne[1], ith, nth, [&](int64_t i) {
        const int span = i < params.n_first ? 0 : 1;
        Row x = row_of(y->src[0], i);
        if (params.centred) {
            const float mean =
                std::accumulate(x.begin(), x.end(), 0.0f) / static_cast<float>(x.size());
            for (float& value : x) {
                value -= mean;
            }
        }
        const float size = root_mean_square(x, params.eps);
        const Row scale = row_of(y->src[1 + 2 * span], 0);
        const Row shift = params.centred ? row_of(y->src[2 + 2 * span], 0) : Row(x.size());
        for (size_t j = 0; j < x.size(); ++j) {
            x[j] = x[j] / size * (params.centred ? 1 + scale[j] : scale[j]) + shift[j];
        }
        set_row(y, i, x);
    });
}

void plain_add_gated(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<GateParams>(y);
    share(y->ne[1], ith, nth, [&](int64_t i) {
        Row x = row_of(y->src[0], i);
        const Row branch = row_of(y->src[1], i);
        const ggml_tensor* gate = y->src[i < params.n_first ? 2 : 3];
        const Row factor = gate != nullptr ? row_of(gate, 0) : Row(x.size(), 1.0f);
        for (size_t j = 0; j < x.size(); ++j) {
            x[j] += factor[j] * branch[j];
        }
        set_row(y, i, x);
    });
}

void plain_swiglu(ggml_tensor* y, int ith, int nth, void*) {
    share(y->ne[1], ith, nth, [&](int64_t i) {
        Row row = y->src[2] != nullptr ? row_of(y->src[2], i) : Row();
        const Row gate = row_of(y->src[0], i);
        const Row up = row_of(y->src[1], i);
        for (size_t j = 0; j < gate.size(); ++j) {
            row.push_back(gate[j] / (1 + std::exp(-gate[j])) * up[j]);
        }
        set_row(y, i, row);
    });
}

void plain_rope_table(ggml_tensor* y, int ith, int nth, void*) {
    const auto theta = static_cast<double>(params_of<RopeParams>(y).theta);
    const auto n_axes = std::find(y->src, y->src + GGML_MAX_SRC, nullptr) - y->src;
    const int64_t n_pairs = y->ne[0] / 2 / n_axes;  // of an axis
    share(y->ne[1], ith, nth, [&](int64_t i) {
        Row row;
        for (int64_t j = 0; j < n_axes * n_pairs; ++j) {
            const int32_t position = static_cast<const int32_t*>(y->src[j / n_pairs]->data)[i];
            const double exponent =
                -static_cast<double>(j % n_pairs) / static_cast<double>(n_pairs);
            const double angle = position * std::pow(theta, exponent);
            row.push_back(static_cast<float>(std::cos(angle)));
            row.push_back(static_cast<float>(std::sin(angle)));
        }
        set_row(y, i, row);
    });
}

void rotate(Row& head, const Row& table, bool halves) {
    const size_t n_pairs = head.size() / 2;
    for (size_t i = 0; i < n_pairs; ++i) {
        float& x = head[halves ? i : 2 * i];
        float& y = head[halves ? i + n_pairs : 2 * i + 1];
        const float c = table[2 * i];
        const float s = table[2 * i + 1];
        const float rotated = x * c - y * s;
        y = x * s + y * c;
        x = rotated;
    }
}

void plain_join_heads(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<HeadsParams>(y);
    const int sources = params.normalises ? 2 : 1;  // of a part
    const ggml_tensor* table = params.rotates ? y->src[params.n_parts * sources] : nullptr;
    const int64_t n_first = y->src[0]->ne[2];
    share(y->ne[2], ith, nth, [&](int64_t i) {
        const int part = i < n_first ? 0 : 1;
        const ggml_tensor* x = y->src[part * sources];
        for (int64_t head = 0; head < y->ne[1]; ++head) {
            Row row = row_of(x, head, i - part * n_first);
            if (params.normalises) {
                const Row norm = row_of(y->src[part * sources + 1], 0);
                const float size = root_mean_square(row, params.eps);
                for (size_t j = 0; j < row.size(); ++j) {
                    row[j] = row[j] / size * norm[j];
                }
            }
            if (params.rotates) {
                rotate(row, row_of(table, i), params.halves);
            }
            write_row(y, row_offset(y, head, i), row);
        }
    });
}

// Adds up one query's answer, a key at a time.
class Answer {
  public:
    explicit Answer(const Row& query) : query_(query), sum_(query.size()) {}

    void see(RowView key, RowView value, float mask) {
        const float score = dot(query_, key) / std::sqrt(static_cast<float>(key.size())) + mask;
        if (score == -std::numeric_limits<float>::infinity()) {
            return;
        }
        const float highest = std::max(highest_, score);
        const float factor = std::exp(highest_ - highest);
        const float weight = std::exp(score - highest);
        highest_ = highest;
        total_ = total_ * factor + weight;
        for (size_t i = 0; i < value.size(); ++i) {
            sum_[i] = sum_[i] * factor + weight * value[i];
        }
    }

    // The logarithm of the sum of e^score.
    float log_sum() const { return highest_ + std::log(total_); }

    Row take() {
        for (float& value : sum_) {
            value /= total_;
        }
        return std::move(sum_);
    }

  private:
    const Row& query_;
    Row sum_;
    float highest_ = -std::numeric_limits<float>::infinity();
    float total_ = 0;
};

void plain_attention(ggml_tensor* y, int ith, int nth, void*) {
    const auto params = params_of<AttentionParams>(y);
    const ggml_tensor *q = y->src[0], *k = y->src[1], *v = y->src[2];
    const ggml_tensor* mask = params.has_mask ? y->src[params.has_kept ? 5 : 3] : nullptr;
    const int64_t n_head = q->ne[1];
    share(q->ne[2] * n_head, ith, nth, [&](int64_t i) {
        const int64_t query = i / n_head;
        const int64_t head = i % n_head;
        const int64_t head_kv = head / (n_head / k->ne[1]);
        const bool is_main = query < params.n_main;
        const Row vector = row_of(q, head, query);
        const Row masks = mask != nullptr ? row_of(mask, query) : Row(bytes_at(k->ne[2], 1));
        Answer answer(vector);
        RowReader keys;
        RowReader values;
        for (int64_t j = is_main ? 0 : params.n_main; j < k->ne[2]; ++j) {
            answer.see(keys.row(k, head_kv, j), values.row(v, head_kv, j),
                       masks[static_cast<size_t>(j)]);
        }
        for (int64_t j = 0; params.has_kept && is_main && j < y->src[3]->ne[2]; ++j) {
            answer.see(keys.row(y->src[3], head_kv, j), values.row(y->src[4], head_kv, j), 0.0f);
        }
        const size_t row = bytes_at(query, y->nb[1]);
        if (params.keeps_sums) {
            const float log_sum = answer.log_sum();
            std::memcpy(static_cast<char*>(y->data) + row +
                            ggml_row_size(y->type, n_head * q->ne[0]) +
                            bytes_at(head, sizeof(float)),
                        &log_sum, sizeof(log_sum));
        }
        write_row(y, row + bytes_at(head * q->ne[0], ggml_type_size(y->type)), answer.take());
    });
}

// How many values of a type the sums of all heads take.
int64_t values_of_sums(int64_t n_head, ggml_type type) {
    constexpr int64_t kAligned = 8;  // rows of 16-bit values begin at multiples of 16 bytes
    return type == GGML_TYPE_F32 ? n_head : GGML_PAD(2 * n_head, kAligned);
}

}  // namespace

const OwnOperation kLinear = {"linear", plain_linear};
const OwnOperation kUnpack = {"unpack", plain_unpack};
const OwnOperation kAddPair = {"add pair", plain_add_pair};
const OwnOperation kModulate = {"modulate", plain_norm};
const OwnOperation kRmsNorm = {"rms norm", plain_norm};
const OwnOperation kAddGated = {"add gated", plain_add_gated};
const OwnOperation kSwiglu = {"swiglu", plain_swiglu};
const OwnOperation kRopeTable = {"rope table", plain_rope_table};
const OwnOperation kJoinHeads = {"join heads", plain_join_heads};
const OwnOperation kAttention = {"attention", plain_attention};

ggml_tensor* linear(Graph& g, ggml_tensor* w, ggml_tensor* x, const NodeForm& form,
                    const LinearParams& params, ggml_tensor* packed_x) {
    const int64_t n_out = w->ne[params.transposed ? 0 : 1];
    return own_node(g, {kLinear, form, {n_out, x->ne[1], 1, 1}},
                    {w, packed_x != nullptr ? packed_x : x}, params);
}

ggml_tensor* linear_with_columns(Graph& g, ggml_tensor* w, ggml_tensor* x, ggml_tensor* down,
                                 const NodeForm& form) {
    check(w->ne[0] == x->ne[0] + down->ne[1] &&
              x->nb[1] >= ggml_row_size(x->type, x->ne[0] + down->ne[1]) && x->type == down->type &&
              x->type == w->type,
          ErrorKind::internal, "no room for the product of a pair of low rank");
    return own_node(g, {kLinear, form, {w->ne[1], x->ne[1], 1, 1}}, {w, x, down}, LinearParams{});
}

ggml_tensor* unpack(Graph& g, ggml_tensor* w, ggml_tensor* after) {
    constexpr int64_t kStep = 64;  // longer rows are multiplied faster from multiples of 128 bytes
    const int64_t n = w->ne[0] + (after != nullptr ? after->ne[0] : 0);
    const int64_t spare = n > kStep ? GGML_PAD(n, kStep) - n : 0;
    const NodeForm form = {.type = GGML_TYPE_BF16, .spare_columns = spare};
    return own_node(g, {kUnpack, form, {n, w->ne[1], 1, 1}}, {w, after});
}

bool can_unpack(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K:
        case GGML_TYPE_Q6_K:
            return true;
        default:
            return false;
    }
}

ggml_tensor* add_pair(Graph& g, ggml_tensor* y, ggml_tensor* x, ggml_tensor* down, ggml_tensor* up,
                      ggml_custom_op_t function) {
    return own_node(g,
                    {kAddPair,
                     {.function = function, .in_place = true},
                     {y->ne[0], y->ne[1], y->ne[2], y->ne[3]}},
                    {y, x, down, up});
}

ggml_tensor* modulate(Graph& g, ggml_tensor* x, std::span<const ModSpan> spans,
                      const NodeForm& form) {
    constexpr float kEps = 1e-6f;
    const Mod& a = spans.front().mod;
    const Mod b = spans.size() > 1 ? spans[1].mod : Mod{};
    return own_node(g, {kModulate, form, {x->ne[0], x->ne[1], 1, 1}},
                    {x, a.scale, a.shift, b.scale, b.shift},
                    NormParams{.n_first = spans.front().n, .eps = kEps, .centred = true});
}

ggml_tensor* rms_norm(Graph& g, ggml_tensor* x, ggml_tensor* scale, float eps,
                      const NodeForm& form) {
    return own_node(g, {kRmsNorm, form, {x->ne[0], x->ne[1], 1, 1}}, {x, scale},
                    NormParams{.n_first = x->ne[1], .eps = eps, .centred = false});
}

ggml_tensor* add_gated(Graph& g, ggml_tensor* x, ggml_tensor* branch,
                       std::span<const ModSpan> spans, const NodeForm& form) {
    ggml_tensor* second = spans.size() > 1 ? spans[1].mod.gate : nullptr;
    return own_node(g, {kAddGated, form, {x->ne[0], x->ne[1], 1, 1}},
                    {x, branch, spans.front().mod.gate, second},
                    GateParams{.n_first = spans.front().n});
}

ggml_tensor* swiglu(Graph& g, ggml_tensor* gate, ggml_tensor* up, ggml_tensor* before,
                    const NodeForm& form) {
    const int64_t width = gate->ne[0] + (before != nullptr ? before->ne[0] : 0);
    return own_node(g, {kSwiglu, form, {width, gate->ne[1], 1, 1}}, {gate, up, before});
}

ggml_tensor* rope_table(Graph& g, std::span<ggml_tensor* const> axes, int64_t head_dim,
                        float theta) {
    ggml_tensor* a[Rope::kMaxAxes] = {};
    std::copy(axes.begin(), axes.end(), a);
    return own_node(g, {kRopeTable, {}, {head_dim, axes.front()->ne[0], 1, 1}},
                    {a[0], a[1], a[2], a[3]}, RopeParams{theta});
}

ggml_tensor* join_heads(Graph& g, std::span<const HeadsPart> parts, const Rope* rope, float eps,
                        const NodeForm& form) {
    const HeadsPart& a = parts.front();
    const HeadsPart b = parts.size() > 1 ? parts[1] : HeadsPart{};
    const int64_t n = a.x->ne[2] + (b.x != nullptr ? b.x->ne[2] : 0);
    return own_node(g, {kJoinHeads, form, {a.x->ne[0], a.x->ne[1], n, 1}},
                    {a.x, a.norm, b.x, b.norm, rope != nullptr ? rope->table : nullptr},
                    HeadsParams{.n_parts = static_cast<int32_t>(parts.size()),
                                .normalises = a.norm != nullptr,
                                .rotates = rope != nullptr,
                                .halves = rope != nullptr && rope->halves,
                                .eps = eps});
}

ggml_tensor* attention(Graph& g, const AttentionInput& in, const NodeForm& form,
                       const PackedKeys& packed, bool keeps_sums) {
    const bool has_kept = in.kept_k != nullptr;
    const int64_t n_sums = keeps_sums ? values_of_sums(in.q->ne[1], form.type) : 0;
    const int64_t width = in.q->ne[0] * in.q->ne[1] + n_sums;
    return own_node(g, {kAttention, form, {width, in.q->ne[2], 1, 1}},
                    {in.q, packed.k != nullptr ? packed.k : in.k,
                     packed.v != nullptr ? packed.v : in.v, in.kept_k, in.kept_v, in.mask},
                    AttentionParams{.n_main = in.n_main > 0 ? in.n_main : in.q->ne[2],
                                    .n_keys = in.k->ne[2] + (has_kept ? in.kept_k->ne[2] : 0),
                                    .has_kept = has_kept,
                                    .has_mask = in.mask != nullptr,
                                    .keeps_sums = keeps_sums});
}

bool nodes_support(int64_t head_dim, int64_t width) {
    constexpr int64_t kMaxWidth = 8192;
    return (head_dim == 32 || head_dim == 64 || head_dim == 128) && width % 8 == 0 &&
           width <= kMaxWidth;
}

}  // namespace flux2::own
