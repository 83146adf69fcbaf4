// How diffusers names the matrices of blocks, for tests that write such files.
#pragma once

#include <array>
#include <utility>

namespace flux2::test {

// Ours and theirs, of double blocks; q, k and v apart.
constexpr std::array<std::pair<const char*, const char*>, 6> kDiffusersMatrices = {
    {{"img_attn.proj", "attn.to_out.0"},
     {"txt_attn.proj", "attn.to_add_out"},
     {"img_mlp.0", "ff.linear_in"},
     {"img_mlp.2", "ff.linear_out"},
     {"txt_mlp.0", "ff_context.linear_in"},
     {"txt_mlp.2", "ff_context.linear_out"}}};

}  // namespace flux2::test
