// From the tensors of one stem to a module: which kind they make, and whether their shapes agree.
#pragma once

#include "adapters/adapter_module.hpp"

#include <map>
#include <optional>
#include <string>

namespace flux2 {

using AdapterTensors = std::map<AdapterRole, const TensorInfo*>;

// "LoRA", "LoKr", "diff".
const char* to_string(AdapterKind kind);

// Whether the tensor is a vector: norms can only be changed by differences or replaced.
bool is_norm_tensor(const std::string& tensor);

struct KindChoice {
    std::optional<AdapterKind> kind;
    std::string reason;  // why there is none: "its pair lora_up is missing"
};

// The kind whose tensors are all there.
KindChoice choose_kind(const AdapterTensors& tensors);

// Whether modules of this kind use such a tensor. Alpha counts as used where it has no meaning.
bool uses(AdapterKind kind, AdapterRole role);

// Fills in rank, n_out and n_in of a module that has all else. Throws bad_file, naming the file and
// the tensor, for shapes that do not agree and for types that are not numbers.
void measure(AdapterModule& module, const std::string& file);

}  // namespace flux2
