// Which part of FLUX.2 a file is, or what else it is, by the names of its tensors alone.
#pragma once

#include "store/tensor_source.hpp"

#include <optional>
#include <string>

namespace flux2 {

enum class Component { transformer, text_encoder, vae };
enum class Naming { original, diffusers, hugging_face, llama_cpp };

const char* to_string(Component component);
const char* to_string(Naming naming);

struct RecognisedPart {
    Component component;
    Naming naming;
};

struct Identity {
    std::optional<RecognisedPart> part;  // nothing: no part of FLUX.2
    // Then: "is a FLUX.1 transformer (vector_in.in_layer.weight); use ...". Empty when the file is
    // of no kind this program has heard of.
    std::string stranger;
};

Identity identify(const TensorSource& source);

}  // namespace flux2
