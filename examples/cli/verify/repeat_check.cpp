#include "verify/repeat_check.hpp"

#include "base/check.hpp"
#include "compute/graph.hpp"
#include "compute/ops/token_ops.hpp"

#include <ggml.h>

#include <cstddef>
#include <random>
#include <vector>

namespace flux2::cli {
namespace {

constexpr size_t kNodes = 16;
constexpr int kRepeats = 30;  // eight algorithms three times, and the fastest then

ggml_tensor* input(Graph& g, int64_t width, int64_t n) {
    ggml_tensor* tensor = ggml_new_tensor_2d(g, GGML_TYPE_BF16, width, n);
    ggml_set_input(tensor);
    return tensor;
}

// Sets values from -1 to 1: drawn uniformly, as millions of normal ones would take minutes.
void fill(ggml_tensor* tensor, uint32_t seed) {
    std::minstd_rand random(seed);
    std::vector<ggml_bf16_t> values(static_cast<size_t>(ggml_nelements(tensor)));
    for (ggml_bf16_t& value : values) {
        const auto bits = static_cast<float>(random() >> 8 & 0xffff);
        value = ggml_fp32_to_bf16(bits / 32768.0f - 1.0f);
    }
    ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
}

struct Size {
    int64_t n_in, n_out, n;
};

// How many of the repeated results differ from the first in any bit.
int count_different(const Backend& backend, const Size& s) {
    Graph g(backend, kNodes, {.operations = Operations::cuda, .activations = GGML_TYPE_BF16});
    ggml_tensor* w = input(g, s.n_in, s.n_out);
    ggml_tensor* x = input(g, s.n_in, s.n);
    ggml_set_output(w);  // both are read again by the next computation
    ggml_set_output(x);
    ggml_tensor* y = ggml_cast(g, linear_activations(g, w, x), GGML_TYPE_F32);
    g.finish(y);
    fill(w, 1);
    fill(x, 2);
    g.compute();
    const HostTensor first = g.read(y);
    int n_different = 0;
    for (int i = 1; i < kRepeats; ++i) {
        g.compute();
        n_different += g.read(y).data == first.data ? 0 : 1;
    }
    return n_different;
}

}  // namespace

void check_repeated_products(const Backend& backend, Report& report) {
    // Matrices of klein-4b and a square one, with as many tokens as make a choice worth it.
    for (const Size& s : {Size{3072, 9216, 1024}, Size{12288, 3072, 768}, Size{3072, 3072, 4608}}) {
        const int n_different = count_different(backend, s);
        report.expect("linear, repeated", concat(s.n_in, " x ", s.n_out, " x ", s.n),
                      n_different == 0, concat(n_different, " of ", kRepeats, " differ"));
    }
}

}  // namespace flux2::cli
