#include "verify/gradient_cases.hpp"

#include "compute/ops/gradient_ops.hpp"

namespace flux2::cli {
namespace {

// Of training: products of frozen matrices and of pairs, with their gradients.
void add_product_cases(std::vector<Case>& cases, const char* name, int64_t width, int64_t n) {
    constexpr int64_t kOut = 96;
    constexpr int64_t kRank = 16;
    const auto matrix = [=](Trial& t, ggml_type type) {
        return t.input({width, kOut, 1, 1}, 0.05f, type);
    };
    for (const ggml_type type : {GGML_TYPE_BF16, GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0,
                                 GGML_TYPE_Q4_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K}) {
        if (width % ggml_blck_size(type) != 0) {
            continue;
        }
        const std::string with_type = std::string(name) + " " + ggml_type_name(type);
        cases.push_back({"exact linear", with_type, [=](Trial& t) {
                             ggml_tensor* w = matrix(t, type);
                             return exact_linear(t.graph(), w, t.input({width, n, 1, 1}));
                         }});
        cases.push_back({"linear gradient", with_type, [=](Trial& t) {
                             ggml_tensor* w = matrix(t, type);
                             return linear_gradient(t.graph(), w, t.input({kOut, n, 1, 1}));
                         }});
    }
    struct Pair {
        ggml_tensor *w, *a, *b;
    };
    const auto matrix_with_pair = [=](Trial& t) {
        ggml_tensor* w = matrix(t, GGML_TYPE_BF16);
        ggml_tensor* a = t.input({width, kRank, 1, 1}, 0.05f);
        return Pair{w, a, t.input({kRank, kOut, 1, 1})};
    };
    cases.push_back({"pair", name, [=](Trial& t) {
                         Graph& g = t.graph();
                         ggml_tensor* x = t.input({width, n, 1, 1});
                         const auto [w, a, b] = matrix_with_pair(t);
                         ggml_tensor* y = exact_linear(g, w, x);
                         ggml_tensor* inner = exact_linear(g, a, x, trained_type(g.form()));
                         return add_exact_linear(g, y, b, inner);
                     }});
    cases.push_back({"pair gradient", name, [=](Trial& t) {
                         Graph& g = t.graph();
                         ggml_tensor* d = t.input({kOut, n, 1, 1});
                         const auto [w, a, b] = matrix_with_pair(t);
                         ggml_tensor* dx = linear_gradient(g, w, d);
                         return add_linear_gradient(g, dx, a, linear_gradient(g, b, d));
                     }});
    cases.push_back({"outer product", name, [=](Trial& t) {
                         ggml_tensor* u = t.input({width, n, 1, 1});
                         return outer_product(t.graph(), u, t.input({kRank, n, 1, 1}));
                     }});
}

// Of training: gradients of attention.
void add_attention_gradient_cases(std::vector<Case>& cases, const std::string& shape,
                                  int64_t head_dim, int64_t n_head, int64_t n) {
    const auto attended = [=](Trial& t) {
        const Shape heads = {head_dim, n_head, n, 1};
        ggml_tensor* q = t.input(heads);
        ggml_tensor* k = t.input(heads);
        const KeptAttention kept = keep_attention(t.graph(), q, k, t.input(heads));
        return attention_gradient(t.graph(), kept, t.input({n_head * head_dim, n, 1, 1}));
    };
    if (n > 1) {  // a single key has a weight of 1, whatever the query is
        cases.push_back({"query gradient", shape, [=](Trial& t) { return attended(t).dq; }});
    }
    cases.push_back({"key gradient", shape, [=](Trial& t) { return attended(t).dkv; }});
}

// Of training: gradients of attention and of the heads it takes, of `n` tokens with two heads.
void add_heads_gradient_cases(std::vector<Case>& cases, const char* name, int64_t n) {
    for (const int64_t d : {32, 64, 128}) {
        constexpr int64_t kHeads = 2;
        const std::string shape = std::string(name) + ", " + std::to_string(d);
        add_attention_gradient_cases(cases, shape, d, kHeads, n);
        cases.push_back({"heads gradient", shape, [=](Trial& t) {
                             constexpr int64_t kFirst = 5;
                             const Shape norm = {d, 1, 1, 1};
                             const int64_t width = kHeads * d;
                             ggml_tensor* p = t.input({3 * width, n, 1, 1});
                             ggml_tensor* q_norm = t.input(norm);
                             const ProjectedHeads part = {p, q_norm, t.input(norm), kFirst};
                             ggml_tensor* dq = t.input({width, kFirst + n, 1, 1});
                             ggml_tensor* dkv = t.input({2 * width, kFirst + n, 1, 1});
                             Rope rope;
                             rope.table = t.input({d, kFirst + n, 1, 1});
                             return heads_gradient(t.graph(), part, {dq, dkv}, rope);
                         }});
    }
}

}  // namespace

void add_gradient_cases(std::vector<Case>& cases) {
    struct Size {
        const char* name;
        int64_t width, n;
    };
    // The longest has several tiles of every form but the CPU's of attention, and one that is not
    // full.
    for (const Size& s : {Size{"1 token", 64, 1}, Size{"odd", 768, 77}, Size{"many", 128, 290}}) {
        const Shape ne = {s.width, s.n, 1, 1};
        add_product_cases(cases, s.name, s.width, s.n);
        add_heads_gradient_cases(cases, s.name, s.n);
        cases.push_back({"gate gradient", s.name, [=](Trial& t) {
                             const Mod mod = t.mod(s.width);
                             return gate_gradient(t.graph(), mod, t.input(ne));
                         }});
        cases.push_back({"modulate gradient", s.name, [=](Trial& t) {
                             const Mod mod = t.mod(s.width);
                             ggml_tensor* x = t.input(ne);
                             ggml_tensor* d = t.input(ne);
                             return modulate_gradient(t.graph(), x, mod, d, t.input(ne));
                         }});
        cases.push_back({"swiglu gradient", s.name, [=](Trial& t) {
                             ggml_tensor* gate = t.input(ne, 4);
                             ggml_tensor* up = t.input(ne);
                             return swiglu_gradient(t.graph(), gate, up, t.input(ne));
                         }});
    }
    // The CPU's form takes 512 queries or keys at a time.
    add_attention_gradient_cases(cases, "530 tokens, 32", 32, 1, 530);
}

}  // namespace flux2::cli
