// One adapter of one tensor of a network, as a file has it: a LoRA pair, a LoHa, a difference.
// Shapes of matrices are [out, in] as in the formulas; a tensor's ne is the other way round.
#pragma once

#include "formats/tensor_directory.hpp"
#include "networks/part.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace flux2 {

enum class AdapterKind {
    lora,        // B A
    loha,        // (w1_a w1_b) * (w2_a w2_b), element by element
    lokr,        // Kronecker product of w1 and w2, each whole or a product
    glora,       // b1 b2 + W a1 a2
    diff,        // a difference of the whole tensor
    set_weight,  // replaces the tensor
    oft,         // rotates blocks of rows (LyCORIS Diag-OFT)
    boft,        // the same in butterfly stages
    oft_v2,      // rotates blocks of inputs (peft)
};

// What a tensor of an adapter is.
enum class AdapterRole {
    down,  // A [rank, in]
    up,    // B [out, rank]
    alpha,
    scale,  // a final factor
    hada_w1_a,
    hada_w1_b,
    hada_w2_a,
    hada_w2_b,
    lokr_w1,
    lokr_w1_a,
    lokr_w1_b,
    lokr_w2,
    lokr_w2_a,
    lokr_w2_b,
    magnitude,  // DoRA's: [out, 1] or [out] per row, [1, in] per column
    diff,
    diff_b,  // of a bias
    set_weight,
    oft_blocks,  // [n, b, b], BOFT's [stages, n, b, b]
    rescale,     // of OFT and BOFT: [out, 1]
    oft_r,       // [n, b (b - 1) / 2]
    scaled_oft,  // a marker of scaled OFTv2
    glora_a1,
    glora_a2,
    glora_b1,
    glora_b2,
};

struct AdapterModule {
    Part part = Part::transformer;
    std::string tensor;  // ours: "double_blocks.0.img_attn.qkv.weight"
    std::string stem;    // what the file calls it, for messages
    AdapterKind kind = AdapterKind::lora;
    // The rows it is for: the matrix has n_shares equal ranges of rows, and this is number `share`.
    // q, k and v of a fused matrix are three of three.
    int share = 0, n_shares = 1;
    // The file has the second half of the rows first (diffusers' norm_out).
    bool swap_halves = false;
    std::map<AdapterRole, const TensorInfo*> tensors;  // in the mapped file
    int64_t rank = 0;                                  // 0 for kinds without
    // Of its rows; n_in is 1 for norms. 0 where the file does not tell: n_in of OFT and BOFT, n_out
    // of OFTv2.
    int64_t n_out = 0, n_in = 0;
    // alpha / rank or what stands for it; 1 where it has no meaning. OFT and BOFT: unused.
    double factor = 1;
    // OFT and BOFT: the limit of the rotation, LyCORIS's alpha; 0: none.
    double constraint = 0;

    const TensorInfo* find(AdapterRole role) const {
        const auto found = tensors.find(role);
        return found == tensors.end() ? nullptr : found->second;
    }
    bool has(AdapterRole role) const { return find(role) != nullptr; }
};

}  // namespace flux2
