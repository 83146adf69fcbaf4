#include "verify/op_check.hpp"

#include "base/check.hpp"
#include "compute/ops/banded_map.hpp"
#include "compute/ops/token_ops.hpp"
#include "verify/gradient_cases.hpp"
#include "verify/layout_check.hpp"
#include "verify/op_trial.hpp"
#include "verify/repeat_check.hpp"

#include <array>
#include <functional>
#include <vector>

namespace flux2::cli {
namespace {

// One span, or two with the first of n_first tokens.
ModSpans random_spans(Trial& t, int64_t width, int64_t n, int64_t n_first) {
    ModSpans spans = {{n_first, t.mod(width)}};
    if (n_first < n) {
        spans.push_back({n - n_first, t.mod(width)});
    }
    return spans;
}

void add_token_cases(std::vector<Case>& cases) {
    struct Size {
        const char* name;
        int64_t width, n, n_first;
        float size;
    };
    for (const Size& s :
         {Size{"1 token", 64, 1, 1, 1}, Size{"odd", 3072, 77, 77, 1},
          Size{"two spans", 256, 131, 100, 1}, Size{"huge values", 512, 9, 9, 1e6f}}) {
        cases.push_back({"modulate", s.name, [=](Trial& t) {
                             return modulate(t.graph(), t.input({s.width, s.n, 1, 1}, s.size),
                                             random_spans(t, s.width, s.n, s.n_first));
                         }});
        cases.push_back({"add_gated", s.name, [=](Trial& t) {
                             ggml_tensor* x = t.input({s.width, s.n, 1, 1}, s.size);
                             return add_gated(t.graph(), x, t.input({s.width, s.n, 1, 1}, s.size),
                                              random_spans(t, s.width, s.n, s.n_first));
                         }});
        // As between two blocks: the sum is read by the norm and by the next sum.
        cases.push_back({"add_gated, modulate", s.name, [=](Trial& t) {
                             const Shape ne = {s.width, s.n, 1, 1};
                             const ModSpans spans = random_spans(t, s.width, s.n, s.n_first);
                             ggml_tensor* w = t.input({64, s.width, 1, 1}, 1, GGML_TYPE_BF16);
                             ggml_tensor* branch =
                                 linear_activations(t.graph(), w, t.input({64, s.n, 1, 1}, s.size));
                             ggml_tensor* x =
                                 add_gated(t.graph(), t.input(ne, s.size), branch, spans);
                             x = add_gated_onto(t.graph(), x, modulate(t.graph(), x, spans), spans);
                             return add(t.graph(), x, modulate(t.graph(), x, spans));
                         }});
        cases.push_back({"add, rms_norm", s.name, [=](Trial& t) {
                             ggml_tensor* branch = t.input({s.width, s.n, 1, 1}, s.size);
                             ggml_tensor* x = t.input({s.width, s.n, 1, 1}, s.size);
                             x = add(t.graph(), x, branch);
                             ggml_tensor* scale = t.input({s.width, 1, 1, 1});
                             return add(t.graph(), x, rms_norm(t.graph(), x, scale, 1e-6f));
                         }});
        cases.push_back({"rms_norm", s.name, [=](Trial& t) {
                             ggml_tensor* x = t.input({s.width, s.n, 1, 1}, s.size);
                             return rms_norm(t.graph(), x, t.input({s.width, 1, 1, 1}), 1e-6f);
                         }});
        cases.push_back(
            {"swiglu", s.name,
             [=](Trial& t) {
                 // As in a network: matrices give activations, attention gives BF16.
                 const ggml_type type = t.graph().form().activations;
                 ggml_tensor* gate = t.input({s.width, s.n, 1, 1}, 1, type);
                 ggml_tensor* up = t.input({s.width, s.n, 1, 1}, 1, type);
                 ggml_tensor* before = t.input({96, s.n, 1, 1}, 1, kept_type(t.graph().form()));
                 return swiglu(t.graph(), gate, up, s.n > 100 ? before : nullptr);
             },
             Operations::stock, /*with_spare=*/true});
        cases.push_back({"linear", s.name, [=](Trial& t) {
                             ggml_tensor* w = t.input({s.width, 48, 1, 1}, 0.05f, GGML_TYPE_BF16);
                             return linear(t.graph(), w, t.input({s.width, s.n, 1, 1}, s.size));
                         }});
        cases.push_back({"linear with a pair", s.name,
                         [=](Trial& t) {
                             ggml_tensor* w = t.matrix_with_pair(s.width, 48, s.n == 1 ? 16 : 64);
                             ggml_tensor* x = t.input({s.width, s.n, 1, 1}, s.size);
                             const ModSpans spans = random_spans(t, s.width, s.n, s.n_first);
                             return linear(t.graph(), w, modulate(t.graph(), x, spans));
                         },
                         Operations::stock, /*with_spare=*/true});
    }
    // Ranks between those of kernels, widths and tokens that are no whole number of tiles.
    for (const int64_t rank : {16, 32, 48}) {
        cases.push_back({"linear with a pair", concat("rank ", rank),
                         [=](Trial& t) {
                             ggml_tensor* x = t.input({33 * rank + 8, 4 * rank + 1, 1, 1});
                             ggml_tensor* scale = t.input({x->ne[0], 1, 1, 1});
                             ggml_tensor* w = t.matrix_with_pair(x->ne[0], 48, rank);
                             return linear(t.graph(), w, rms_norm(t.graph(), x, scale, 1e-6f));
                         },
                         Operations::stock, /*with_spare=*/true});
    }
    for (const ggml_type type : {GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q5_0, GGML_TYPE_Q4_K,
                                 GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
        cases.push_back({"linear, unpacked", ggml_type_name(type),
                         [=](Trial& t) {
                             ggml_tensor* x = t.input({512, 260, 1, 1});
                             ggml_tensor* scale = t.input({512, 1, 1, 1});
                             ggml_tensor* w = t.quantised_with_pair(type, 512, 48, 32);
                             return linear(t.graph(), w, rms_norm(t.graph(), x, scale, 1e-6f));
                         },
                         Operations::stock, /*with_spare=*/true});
    }
    // As after attention with several pictures: activations of each, then a matrix for all.
    cases.push_back({"join_columns, linear", "three parts",
                     [](Trial& t) {
                         const ggml_type type = t.graph().form().activations;
                         const std::array parts = {t.input({64, 5, 1, 1}, 1, type),
                                                   t.input({64, 1, 1, 1}, 1, type),
                                                   t.input({64, 9, 1, 1}, 1, type)};
                         ggml_tensor* w = t.matrix_with_pair(64, 48, 16);
                         return linear(t.graph(), w, join_columns(t.graph(), parts));
                     },
                     Operations::stock, /*with_spare=*/true});
    cases.push_back({"linear", "part of each row", [](Trial& t) {
                         ggml_tensor* w = t.input({64, 48, 1, 1}, 0.05f, GGML_TYPE_BF16);
                         ggml_tensor* y = linear(t.graph(), w, t.input({64, 5, 1, 1}));
                         return ggml_view_2d(t.graph(), y, 20, 5, y->nb[1], 8 * y->nb[0]);
                     }});
}

// A feed-forward branch with weights so large that the values between them, and the residual
// stream, are far outside the range of F16.
void add_scaled_weights_case(std::vector<Case>& cases) {
    constexpr int64_t kWidth = 256;
    constexpr int64_t kTokens = 33;
    constexpr float kSize = 1000;
    cases.push_back({"feed-forward", "weights times 1000", [](Trial& t) {
                         Graph& g = t.graph();
                         ggml_tensor* x = t.input({kWidth, kTokens, 1, 1}, kSize);
                         const ModSpans mod = random_spans(t, kWidth, kTokens, kTokens);
                         const auto w = [&] {
                             return t.input({kWidth, kWidth, 1, 1}, kSize, GGML_TYPE_BF16);
                         };
                         ggml_tensor* y = modulate(g, x, mod);
                         ggml_tensor* gate = linear_activations(g, w(), y);
                         ggml_tensor* h = swiglu(g, gate, linear_activations(g, w(), y));
                         return add_gated(g, x, linear_activations(g, w(), h), mod);
                     }});
}

// Heads of n tokens, the first n_first of them separate -> the inputs of attention
ggml_tensor* random_heads(Trial& t, int64_t head_dim, int64_t n_head, int64_t n, int64_t n_first,
                          const Rope* rope) {
    std::vector<HeadsPart> parts;
    for (const int64_t count : {n_first, n - n_first}) {
        if (count > 0) {
            ggml_tensor* x = t.input({head_dim, n_head, count, 1}, 2);
            parts.push_back({x, rope != nullptr ? t.input({head_dim, 1, 1, 1}) : nullptr});
        }
    }
    return join_heads(t.graph(), parts, rope);
}

void add_heads_cases(std::vector<Case>& cases) {
    for (const int64_t head_dim : {32, 64, 128}) {
        const std::string name = "heads of " + std::to_string(head_dim);
        cases.push_back({"join_heads, four axes", name, [=](Trial& t) {
                             std::array<ggml_tensor*, Rope::kMaxAxes> axes = {};
                             for (size_t i = 0; i < axes.size(); ++i) {
                                 axes[i] = t.positions(45, static_cast<int32_t>(7 * i + 1));
                             }
                             const Rope rope = rope_of_axes(t.graph(), axes, head_dim, 2000);
                             return random_heads(t, head_dim, 3, 45, 13, &rope);
                         }});
        cases.push_back({"join_heads, text", name, [=](Trial& t) {
                             const Rope rope = rope_of_text(t.graph(), t.positions(33, 1), head_dim,
                                                            1e6f, /*halves=*/true);
                             return random_heads(t, head_dim, 5, 33, 33, &rope);
                         }});
        cases.push_back({"join_heads, text as in Mistral", name, [=](Trial& t) {
                             const Rope rope = rope_of_text(t.graph(), t.positions(29, 1), head_dim,
                                                            1e9f, /*halves=*/false);
                             return random_heads(t, head_dim, 3, 29, 29, &rope);
                         }});
        cases.push_back({"join_heads, no norm", name,
                         [=](Trial& t) { return random_heads(t, head_dim, 2, 20, 7, nullptr); }});
    }
}

struct AttentionSize {
    const char* name;
    int64_t head_dim, n_head, n_head_kv, n, n_kept, n_main;
    bool masked;
};

ggml_tensor* build_attention(Trial& t, const AttentionSize& s) {
    const auto heads = [&](int64_t n_head, int64_t n) {
        return random_heads(t, s.head_dim, n_head, n, n, nullptr);
    };
    AttentionInput in = {.q = heads(s.n_head, s.n),
                         .k = heads(s.n_head_kv, s.n),
                         .v = heads(s.n_head_kv, s.n),
                         .n_main = s.n_main};
    if (s.n_kept > 0) {
        in.kept_k = heads(s.n_head_kv, s.n_kept);
        in.kept_v = heads(s.n_head_kv, s.n_kept);
    }
    if (s.masked) {
        in.mask = t.mask(s.n, s.n * 2 / 3 + 1);
    }
    return attention(t.graph(), in);
}

void add_attention_cases(std::vector<Case>& cases) {
    for (const int64_t d : {32, 64, 128}) {
        for (const AttentionSize& s :
             {AttentionSize{"1 token", d, 2, 2, 1, 0, 0, false},
              AttentionSize{"odd", d, 2, 2, 261, 0, 0, false},
              AttentionSize{"masked, shared keys", d, 4, 2, 100, 0, 0, true},
              AttentionSize{"masked, many keys", d, 2, 1, 400, 0, 0, true},
              AttentionSize{"8 references kept", d, 2, 2, 150, 8 * 49, 0, false},
              AttentionSize{"references apart", d, 2, 2, 300, 0, 137, false}}) {
            cases.push_back({"attention " + std::to_string(d), s.name,
                             [=](Trial& t) { return build_attention(t, s); }, Operations::stock,
                             /*with_spare=*/false, /*has_16_bits=*/true});
        }
    }
}

Conv random_conv(Trial& t, int64_t size, int64_t in, int64_t out) {
    return {t.input({size, size, in, out}, 0.1f, GGML_TYPE_F16), t.input({out, 1, 1, 1})};
}

void add_feature_map_cases(std::vector<Case>& cases) {
    const auto add = [&](const char* name, const char* shape, const Shape& planes, float size,
                         const std::function<FeatureMap(Trial&, const FeatureMap&)>& build) {
        const auto build_planes = [=](Trial& t) {
            const FeatureMap x = t.feature_map(planes, size);
            return to_planes(t.graph(), build(t, x));
        };
        // ggml rounds pixels to F16, whose largest value is 65504.
        cases.push_back(
            {name, shape, build_planes, size > 1 ? Operations::cpu : Operations::stock});
    };
    const auto conv_to = [](int64_t size, int64_t in, int64_t out) {
        return [=](Trial& t, const FeatureMap& x) {
            return conv(t.graph(), random_conv(t, size, in, out), x);
        };
    };
    add("conv", "3x3, 3 to 32", {37, 23, 3, 1}, 1, conv_to(3, 3, 32));
    add("conv", "3x3, 64 to 96", {21, 13, 64, 1}, 1, conv_to(3, 64, 96));
    add("conv", "3x3, 128 to 3", {9, 50, 128, 1}, 1, conv_to(3, 128, 3));
    add("conv", "3x3, 64 to 256", {26, 11, 64, 1}, 1, conv_to(3, 64, 256));
    add("conv", "1x1, 64 to 32", {5, 7, 64, 1}, 1, conv_to(1, 64, 32));
    add("conv", "huge values", {20, 20, 64, 1}, 1e5f, conv_to(3, 64, 64));
    add("conv_add", "odd", {19, 13, 64, 1}, 1, [](Trial& t, const FeatureMap& x) {
        const FeatureMap skip = conv(t.graph(), random_conv(t, 1, 64, 64), x);
        return conv_add(t.graph(), random_conv(t, 3, 64, 64), x, skip);
    });
    add("conv_down", "even", {38, 22, 64, 1}, 1, [](Trial& t, const FeatureMap& x) {
        return conv_down(t.graph(), random_conv(t, 3, 64, 64), x);
    });
    add("conv_down_centred", "even", {38, 22, 64, 1}, 1, [](Trial& t, const FeatureMap& x) {
        const FeatureMap y = conv(t.graph(), random_conv(t, 1, 64, 64), x);
        return conv_down_centred(t.graph(), random_conv(t, 3, 64, 64), y);
    });
    add("conv_up", "odd", {19, 11, 64, 1}, 1, [](Trial& t, const FeatureMap& x) {
        return conv_up(t.graph(), random_conv(t, 3, 64, 64), x);
    });
    const auto norm_of = [](int64_t channels) {
        return [=](Trial& t, const FeatureMap& x) {
            // A convolution first: norms read the output format of convolutions.
            const FeatureMap y = conv(t.graph(), random_conv(t, 1, 64, channels), x);
            const Shape ne = {channels, 1, 1, 1};
            return group_norm_silu(t.graph(), {t.input(ne), t.input(ne)}, y);
        };
    };
    add("group_norm_silu", "odd", {37, 23, 64, 1}, 1, norm_of(128));
    add("group_norm_silu", "1 pixel", {1, 1, 64, 1}, 1, norm_of(128));
    add("group_norm_silu", "huge values", {10, 10, 64, 1}, 1e5f, norm_of(128));
    add("group_norm_silu", "3 in a group", {37, 23, 64, 1}, 1, norm_of(96));
    add("group_norm_silu", "6 in a group", {19, 13, 64, 1}, 1, norm_of(192));
    add("group_norm_silu", "12 in a group", {9, 7, 64, 1}, 1, norm_of(384));
    add("conv_of_norm", "odd", {19, 13, 64, 1}, 1, [](Trial& t, const FeatureMap& x) {
        const FeatureMap y = conv(t.graph(), random_conv(t, 1, 64, 64), x);
        const Shape ne = {64, 1, 1, 1};
        return conv_of_norm(t.graph(), random_conv(t, 3, 64, 96), {t.input(ne), t.input(ne)}, y);
    });
    add("group_norm_relu", "4 groups", {19, 13, 64, 1}, 1, [](Trial& t, const FeatureMap& x) {
        const FeatureMap y = conv(t.graph(), random_conv(t, 1, 64, 256), x);
        const Shape ne = {256, 1, 1, 1};
        return group_norm_relu(t.graph(), {t.input(ne), t.input(ne)}, y, 4, 1e-5f);
    });
    add("relu", "odd", {19, 13, 64, 1}, 1, [](Trial& t, const FeatureMap& x) {
        return relu(t.graph(), conv(t.graph(), random_conv(t, 1, 64, 64), x));
    });
    add("pixel_attention", "odd", {17, 19, 64, 1}, 1, [](Trial& t, const FeatureMap& x) {
        const auto y = [&] { return conv(t.graph(), random_conv(t, 1, 64, 64), x); };
        const FeatureMap q = y();
        const FeatureMap k = y();
        return pixel_attention(t.graph(), q, k, y());
    });
}

// A block of the autoencoder some rows at a time, with what lies between its convolutions kept or
// computed again; of a map that was kept in bands, or of a whole one. ggml's operations have whole
// maps only.
FeatureMap banded_block(Trial& t, const FeatureMap& x, bool keeps, bool from_whole) {
    Graph& g = t.graph();
    const Shape ne = {64, 1, 1, 1};
    const Conv conv0 = random_conv(t, 1, 64, 64);
    const GroupNorm norm1 = {t.input(ne), t.input(ne)};
    const GroupNorm norm2 = {t.input(ne), t.input(ne)};
    const Conv conv1 = random_conv(t, 3, 64, 64);
    const Conv conv2 = random_conv(t, 3, 64, 64);
    if (g.form().operations == Operations::stock) {
        const FeatureMap y = conv(g, conv0, x);
        const FeatureMap h = conv(g, conv1, group_norm_silu(g, norm1, y));
        return conv_add(g, conv2, group_norm_silu(g, norm2, h), y);
    }
    BandedMap result =
        from_whole ? BandedMap(g, conv(g, conv0, x)) : kept(g, conv(g, conv0, BandedMap(g, x)));
    BandedMap hidden = conv(g, conv1, group_norm_silu(g, norm1, result));
    hidden = keeps ? kept(g, hidden) : hidden;
    replace(g, result, group_norm_silu(g, norm2, hidden), 1,
            [&](const FeatureMap& h, const Rows& rows) {
                return conv_add(g, conv2, h, result.rows(rows), result.precision());
            });
    return result.whole();
}

// resample is conv_up, conv_down or conv_down_centred, of a feature map or of one in bands.
template <typename Resample>
FeatureMap banded_resample(Trial& t, const FeatureMap& x, const Resample& resample) {
    Graph& g = t.graph();
    const FeatureMap y = conv(g, random_conv(t, 1, 64, 64), x);
    const Conv w = random_conv(t, 3, 64, 64);
    return g.form().operations == Operations::stock
               ? resample(g, w, y)
               : kept(g, resample(g, w, BandedMap(g, y))).whole();
}

void add_banded_cases(std::vector<Case>& cases) {
    const auto add = [&](const char* name,
                         const std::function<FeatureMap(Trial&, const FeatureMap&)>& build) {
        cases.push_back({name, "in bands", [=](Trial& t) {
                             return to_planes(t.graph(), build(t, t.feature_map({12, 14, 64, 1})));
                         }});
    };
    add("block, hidden kept",
        [](Trial& t, const FeatureMap& x) { return banded_block(t, x, true, false); });
    add("block, again",
        [](Trial& t, const FeatureMap& x) { return banded_block(t, x, false, false); });
    add("block, whole map",
        [](Trial& t, const FeatureMap& x) { return banded_block(t, x, true, true); });
    add("conv_up", [](Trial& t, const FeatureMap& x) {
        return banded_resample(
            t, x, [](Graph& g, const Conv& w, const auto& y) { return conv_up(g, w, y); });
    });
    add("conv_down", [](Trial& t, const FeatureMap& x) {
        return banded_resample(
            t, x, [](Graph& g, const Conv& w, const auto& y) { return conv_down(g, w, y); });
    });
    add("conv_down_centred", [](Trial& t, const FeatureMap& x) {
        return banded_resample(t, x, [](Graph& g, const Conv& w, const auto& y) {
            return conv_down_centred(g, w, y);
        });
    });
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    add_token_cases(cases);
    add_scaled_weights_case(cases);
    add_heads_cases(cases);
    add_attention_cases(cases);
    add_gradient_cases(cases);
    add_feature_map_cases(cases);
    add_banded_cases(cases);
    return cases;
}

HostTensor result_of(const Case& c, const Backend& backend, const Form& form,
                     RandomValues& random) {
    Trial trial(backend, form, random);
    return trial.compute(c.build(trial));
}

constexpr int64_t kBandValues = 12 * 64 * 4;  // four rows of the cases in bands

// Forms of graphs that kernels compute: activations in both types, with room after each row, and
// with feature maps in F16.
const std::array<Form, 3> kKernelForms = {{{.operations = Operations::cuda,
                                            .activations = GGML_TYPE_BF16,
                                            .unpacks = true,
                                            .band_values = kBandValues},
                                           {.operations = Operations::cuda,
                                            .activations = GGML_TYPE_BF16,
                                            .unpacks = true,
                                            .spare_columns = 64},
                                           {.operations = Operations::cuda,
                                            .activations = GGML_TYPE_F32,
                                            .band_values = kBandValues,
                                            .half_bands = true}}};

// The forms for the CPU at hand: exact, and attention in 16 bits too, as used with smaller types.
void check_cpu_forms(const Case& c, const Backend& cpu, const HostTensor& other,
                     RandomValues& random, Report& report) {
    constexpr double kExact = 2e-3;  // ggml's attention and convolutions round to F16
    constexpr double k16Bits = 1e-2;
    for (const bool exact : {true, false}) {
        if (!exact && !c.has_16_bits) {
            continue;
        }
        const Form form = {.operations = Operations::cpu,
                           .activations = GGML_TYPE_F32,
                           .exact = exact,
                           .band_values = kBandValues};
        const HostTensor ours = result_of(c, cpu, form, random);
        report.compare_values(c.operation, c.shape + (exact ? "" : ", 16 bits"), ours, other,
                              exact ? kExact : k16Bits);
    }
}

// The plain forms of kernels, and the kernels where the backend has them.
void check_kernel_forms(const Case& c, const Backend& backend, const Backend& cpu,
                        const HostTensor& other, RandomValues& random, Report& report) {
    // Activations in BF16 or F16, rounded two or three times on the way.
    constexpr double kAgainstOther = 1e-2;
    // The same roundings, but sums in another order may be rounded to the adjacent value.
    constexpr double kAgainstPlain = 4e-3;
    for (const Form& form : kKernelForms) {
        if (form.spare_columns > 0 && !c.with_spare) {
            continue;
        }
        const HostTensor plain = result_of(c, cpu, form, random);
        report.compare_values(c.operation, c.shape, plain, other, kAgainstOther);
        if (backend.is_cpu()) {
            continue;
        }
        const HostTensor ours = result_of(c, backend, form, random);
        report.compare_values("  kernel, plain form", c.shape, ours, plain, kAgainstPlain);
        report.compare_values("  kernel, other form", c.shape, ours, other, kAgainstOther);
    }
}

}  // namespace

void check_operations(const std::string& device, int n_threads, Report& report) {
    const Backend backend(device, n_threads);
    check(backend.operations() != Operations::stock, ErrorKind::unsupported, backend.name(),
          " has no operations of our own; they exist for NVIDIA GPUs from sm_80 on, in builds with "
          "FLUX2_KERNELS");
    const Backend cpu("CPU", n_threads);
    RandomValues random;
    for (const Case& c : all_cases()) {
        const HostTensor other = result_of(c, cpu, {c.other, GGML_TYPE_F32}, random);
        if (backend.is_cpu()) {
            check_cpu_forms(c, cpu, other, random, report);
        } else {
            check_kernel_forms(c, backend, cpu, other, random, report);
        }
    }
    if (backend.is_cpu()) {
        check_weight_layouts(cpu, random, report);
    } else {
        check_repeated_products(backend, report);
    }
}

void check_plain_forms(Report& report) {
    const Backend cpu("CPU");
    RandomValues random;
    for (const Case& c : all_cases()) {
        const HostTensor other = result_of(c, cpu, {c.other, GGML_TYPE_F32}, random);
        check_kernel_forms(c, cpu, cpu, other, random, report);
    }
}

}  // namespace flux2::cli
