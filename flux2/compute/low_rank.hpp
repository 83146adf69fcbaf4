// Pairs of low rank that run beside the matrices of a network: y = W x + up (down x). A pair is two
// tensors, or one and the last columns of its matrix: W [in + rank, out] is multiplied with x and
// down x, one after the other in each row, at nearly the cost of W x.
#pragma once

#include "compute/backend.hpp"
#include "compute/tensor_context.hpp"

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace flux2 {

struct LowRankPair;

// Shapes are ggml order, fastest first.
struct LowRankTensors {
    ggml_tensor* down = nullptr;  // [in, rank]
    ggml_tensor* up = nullptr;    // [rank, out]; null: the last columns of the matrix
    // Where the matrix is unpacked, `up` becomes the last columns of what that gives.
    bool joins_unpacked = false;
    // Both are packed as compute/cpu/low_rank takes them: [16, in, rank / 16], [16, rank, out /
    // 16].
    bool in_panels = false;
};

// By the matrix that they belong to.
using LowRankTable = std::unordered_map<const ggml_tensor*, LowRankTensors>;

class LowRankWeights {
  public:
    // Borrows the backend.
    explicit LowRankWeights(const Backend& backend) : backend_(backend) {}

    struct Item {
        ggml_tensor* matrix;
        int64_t n_in;       // without columns of a pair
        int64_t n_columns;  // of the matrix that are for its pair; 0: two tensors
        int64_t rank;
        bool joins_unpacked;
        std::function<LowRankPair()> read;
    };
    // Replaces all pairs by these; matrices must have memory. Throws out_of_memory or cancelled;
    // then, as after clear(), there are no pairs.
    void place(const std::vector<Item>& items);
    void clear();

    const LowRankTable& table() const { return pairs_.table; }
    uint64_t bytes() const { return pairs_.buffer.bytes; }

    // Ranks are filled up with zeros to a number that kernels for matrices like; as columns so that
    // rows begin at multiples of 128 bytes.
    static int64_t padded(int64_t rank);
    static int64_t padded_columns(int64_t rank);

  private:
    struct Pairs {
        TensorContext context;
        TensorBuffer buffer;
        LowRankTable table;
    };
    void fill(const Item& item, const LowRankTensors& tensors) const;

    const Backend& backend_;
    Pairs pairs_;  // all of them written
};

}  // namespace flux2
