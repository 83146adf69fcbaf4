// Graphs of single operations with random inputs, for comparing the forms of an operation.
#pragma once

#include "common/random_values.hpp"
#include "compute/graph.hpp"
#include "compute/operands.hpp"
#include "compute/ops/feature_map_ops.hpp"

#include <ggml.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace flux2::cli {

using Shape = std::array<int64_t, 4>;

// A graph with random inputs, which are the same for every form of the graph.
class Trial {
  public:
    Trial(const Backend& backend, const Form& form, RandomValues& random);

    Graph& graph() { return graph_; }

    // Standard normal values times `size`.
    ggml_tensor* input(const Shape& ne, float size = 1, ggml_type type = GGML_TYPE_F32);

    ggml_tensor* positions(int64_t n, int32_t step);

    // Query i sees the keys up to i, but none from n_real on.
    ggml_tensor* mask(int64_t n, int64_t n_real);

    // A quantised matrix with a pair of low rank, as graphs that unpack it take it; as F32 for
    // others.
    ggml_tensor* quantised_with_pair(ggml_type type, int64_t n_in, int64_t n_out, int64_t rank);

    // A matrix in BF16 with a pair of low rank, whose second half is the last columns of the
    // matrix; in the layout that the graph's form takes.
    ggml_tensor* matrix_with_pair(int64_t n_in, int64_t n_out, int64_t rank);

    FeatureMap feature_map(const Shape& planes, float size = 1);

    Mod mod(int64_t width);

    HostTensor compute(ggml_tensor* result);

  private:
    ggml_tensor* panels(ggml_tensor* matrix);

    RandomValues& random_;
    LowRankTable pairs_;
    Graph graph_;
    std::vector<std::pair<ggml_tensor*, std::vector<float>>> inputs_;
    std::vector<std::pair<ggml_tensor*, std::vector<int32_t>>> positions_;
};

struct Case {
    std::string operation, shape;
    std::function<ggml_tensor*(Trial&)> build;
    // What to compare with: ggml's operations, or those of compute/cpu if ggml's overflow.
    Operations other = Operations::stock;
    bool with_spare = false;   // also in graphs with spare values after each row
    bool has_16_bits = false;  // computes attention, which has a form in 16 bits on some CPUs
};

}  // namespace flux2::cli
