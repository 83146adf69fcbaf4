// Which part of FLUX.2 a file is, or what other kind of file, by the names of its tensors; language
// models also by a shape.
#pragma once

#include "formats/tensor_source.hpp"
#include "networks/part.hpp"

#include <string>
#include <vector>

namespace flux2 {

enum class Naming { original, diffusers, hugging_face, llama_cpp };

const char* to_string(Naming naming);

struct RecognisedPart {
    Part part;
    Naming naming;
    std::string prefix;  // of its tensors, see prefix_of
};

struct Identity {
    // In the order of Part; several in all-in-one checkpoints, distinguished by prefixes. Empty: no
    // part of FLUX.2.
    std::vector<RecognisedPart> parts;
    // If `parts` is empty: what the file is instead, such as "is a FLUX.1 transformer
    // (vector_in.in_layer.weight); use ...". Empty for an unknown kind of file.
    std::string other_kind;
};

Identity identify(const TensorSource& source);

}  // namespace flux2
