// Which tensor gets which type.
#pragma once

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/inventory.hpp"

#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace flux2::convert {

// A name for --type: a plain type, or a mix of several.
struct FileType {
    const char* name;
    TensorType base;
    uint32_t number;  // general.file_type, llama.cpp's numbering
};

// Throws bad_argument, listing the known ones. Case does not matter; Q5_K, Q4_K or Q3_K alone is
// the _M mix, as in llama.cpp.
const FileType& parse_file_type(const std::string& name);

// "REGEX=TYPE" of --tensor-type, where Q4_K is the type itself. Throws bad_argument.
struct TypeOverride {
    std::string text;  // as it was given
    std::regex pattern;
    TensorType type;
};
TypeOverride parse_type_override(const std::string& text);

struct TypeRequest {
    const FileType* file_type = nullptr;
    std::vector<TypeOverride> overrides;  // the first that matches wins

    // At most one of them. When set, the matrices of the blocks get types by their measured errors,
    // and file_type is for the others.
    std::optional<uint64_t> target_bytes;
    std::optional<double> max_error;

    bool by_error() const { return target_bytes || max_error; }
};

struct TypeChoice {
    TensorType type = TensorType::f32;
    // Set when the wanted type does not fit the row length.
    std::optional<TensorType> wanted;
    // A matrix of the blocks that no override names: its type may be chosen by error.
    bool open = false;
};

// The plain file type of this base, without a mix.
const FileType& plain_file_type(TensorType base);

// `sizes` tells the text encoder's number of layers and heads; unused for other parts.
TypeChoice choose_type(const TypeRequest& request, Part part, const ExpectedTensor& tensor,
                       TensorType source_type, const TextEncoderSizes& sizes, bool tied_embeddings);

}  // namespace flux2::convert
