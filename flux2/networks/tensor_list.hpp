// The registry of tensors: the name and the shape of every tensor of a network, by its sizes. Names
// are ours; checkpoints/tensor_names has those of others.
#pragma once

#include "base/shape.hpp"
#include "networks/sizes.hpp"

#include <string>
#include <vector>

namespace flux2 {

struct ExpectedTensor {
    std::string name;
    Shape shape;
    bool required = true;  // files without it are complete, and no graph uses it, when false
};

std::vector<ExpectedTensor> tensor_list(const TransformerSizes& sizes);
std::vector<ExpectedTensor> tensor_list(const TextEncoderSizes& sizes);
std::vector<ExpectedTensor> tensor_list(const VaeSizes& sizes);
std::vector<ExpectedTensor> tensor_list(const TinyAutoencoderSizes& sizes);

}  // namespace flux2
