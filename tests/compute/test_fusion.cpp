// Which nodes a CUDA kernel computes together, by where their tensors lie.
#include "compute/cuda/fusion.hpp"

#include "compute/plain/token_nodes.hpp"

#include <doctest/doctest.h>
#include <ggml.h>

#include <array>
#include <cstddef>
#include <vector>

namespace flux2 {
namespace {

constexpr int64_t kRowWidth = 8;
constexpr int64_t kRows = 6;

// A gate and the norm of what it gives, with all tensors apart from each other in memory.
class GateAndNorm {
  public:
    GateAndNorm() {
        const auto rows = [&](int64_t n) {
            return ggml_new_tensor_2d(graph_, GGML_TYPE_F32, kRowWidth, n);
        };
        x = rows(kRows);
        branch = rows(kRows);
        gate = rows(1);
        second_gate = rows(1);
        const std::array spans = {
            ModSpan{4, {.shift = rows(1), .scale = rows(1), .gate = gate}},
            ModSpan{2, {.shift = rows(1), .scale = rows(1), .gate = second_gate}}};
        sum = own::add_gated(graph_, x, branch, spans, {});
        norm = own::modulate(graph_, sum, spans, {});
        for (ggml_tensor* tensor : {x, branch, gate, second_gate, sum, norm}) {
            tensor->data = memory_.data() + used_;
            used_ += ggml_nbytes(tensor);
        }
    }

    bool fuses() const { return cuda::fuses_gate_and_norm(sum, norm); }

    ggml_tensor *x, *branch, *gate, *second_gate, *sum, *norm;

  private:
    Backend backend_{"CPU", 1};
    Graph graph_{backend_, 16};
    std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
    size_t used_ = 0;
};

TEST_CASE("a gate and the norm of its result are computed together") {
    CHECK(GateAndNorm().fuses());
}

TEST_CASE("the norm may be written over what is read row by row") {
    for (ggml_tensor* GateAndNorm::*source : {&GateAndNorm::x, &GateAndNorm::branch}) {
        GateAndNorm nodes;
        nodes.norm->data = (nodes.*source)->data;
        CHECK(nodes.fuses());
        nodes.norm->data = static_cast<float*>((nodes.*source)->data) + kRowWidth;
        CHECK_FALSE(nodes.fuses());
    }
}

TEST_CASE("the norm is not written over a gate, which is read for every row") {
    for (ggml_tensor* GateAndNorm::*gate : {&GateAndNorm::gate, &GateAndNorm::second_gate}) {
        GateAndNorm nodes;
        for (const int64_t row : {int64_t{0}, kRows - 1}) {
            nodes.norm->data = static_cast<float*>((nodes.*gate)->data) - row * kRowWidth;
            CHECK_FALSE(nodes.fuses());
        }
    }
}

TEST_CASE("the norm of another tensor is computed on its own") {
    GateAndNorm nodes;
    CHECK_FALSE(cuda::fuses_gate_and_norm(nodes.norm, nodes.sum));
    nodes.norm->src[0] = nodes.x;
    CHECK_FALSE(nodes.fuses());
}

}  // namespace
}  // namespace flux2
