#include "type_choice.hpp"

#include "base/check.hpp"
#include "base/letter_case.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace flux2::convert {
namespace {

using enum TensorType;

constexpr std::array kFileTypes = {
    FileType{"F32", f32, 0},      FileType{"F16", f16, 1},        FileType{"BF16", bf16, 32},
    FileType{"Q8_0", q8_0, 7},    FileType{"Q6_K", q6_k, 18},     FileType{"Q5_K_M", q5_k, 17},
    FileType{"Q5_K_S", q5_k, 16}, FileType{"Q5_1", q5_1, 9},      FileType{"Q5_0", q5_0, 8},
    FileType{"Q4_K_M", q4_k, 15}, FileType{"Q4_K_S", q4_k, 14},   FileType{"Q4_1", q4_1, 3},
    FileType{"Q4_0", q4_0, 2},    FileType{"IQ4_NL", iq4_nl, 25}, FileType{"IQ4_XS", iq4_xs, 30},
    FileType{"MXFP4", mxfp4, 38}, FileType{"Q3_K_M", q3_k, 12},   FileType{"Q3_K_S", q3_k, 11},
    FileType{"Q2_K", q2_k, 10},
};

// Names without suffix: the type itself for --tensor-type, the mix _M for --type.
constexpr std::array kBareNames = {std::pair{"Q5_K", q5_k}, std::pair{"Q4_K", q4_k},
                                   std::pair{"Q3_K", q3_k}};

const TensorType* find_bare(const std::string& name) {
    const auto* found = std::find_if(kBareNames.begin(), kBareNames.end(),
                                     [&](const auto& bare) { return name == bare.first; });
    return found == kBareNames.end() ? nullptr : &found->second;
}

const FileType* find_file_type(const std::string& name) {
    const std::string known = to_upper(name) + (find_bare(to_upper(name)) != nullptr ? "_M" : "");
    const auto* found = std::find_if(kFileTypes.begin(), kFileTypes.end(),
                                     [&](const FileType& t) { return known == t.name; });
    return found == kFileTypes.end() ? nullptr : found;
}

std::string known_types() {
    std::string names;
    for (const FileType& type : kFileTypes) {
        names += (names.empty() ? "" : ", ") + std::string(type.name);
    }
    return names;
}

bool is_block_matrix(Part part, const ExpectedTensor& tensor) {
    if (tensor.shape.n_dims < 2) {
        return false;
    }
    return part == Part::text_encoder ? tensor.name.starts_with("blk.")
                                      : tensor.name.starts_with("double_blocks.") ||
                                            tensor.name.starts_with("single_blocks.");
}

bool named(const FileType& type, std::string_view name) {
    return type.name == name;
}

// The same types as in city96's ComfyUI-GGUF; matrices outside the blocks stay in 16 bits.
TensorType transformer_type(const FileType& wanted, const std::string& name,
                            TensorType source_type) {
    if (!is_quantized(wanted.base)) {
        return wanted.base;
    }
    if (!name.starts_with("double_blocks.") && !name.starts_with("single_blocks.")) {
        return is_quantized(source_type) ? source_type : bf16;
    }
    if (name.find("attn.qkv") != std::string::npos) {
        if (named(wanted, "Q5_K_M")) {
            return q6_k;
        }
        if (named(wanted, "Q4_K_M")) {
            return q5_k;
        }
        if (named(wanted, "Q3_K_M")) {
            return q4_k;
        }
    }
    return wanted.base;
}

// The first and last eighth of the layers, and every third between them.
bool gets_more_bits(int64_t layer, int64_t n_layers) {
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

TensorType attention_v_type(const FileType& wanted, int64_t layer, const TextEncoderSizes& sizes) {
    const bool shared_heads = sizes.n_head / sizes.n_head_kv >= 4;
    if (named(wanted, "Q2_K")) {
        return shared_heads ? q4_k : q3_k;
    }
    if (named(wanted, "Q3_K_M")) {
        return layer < 2 ? q5_k : q4_k;
    }
    if ((wanted.base == iq4_nl || wanted.base == iq4_xs) && shared_heads) {
        return q5_k;
    }
    if ((named(wanted, "Q4_K_M") || named(wanted, "Q5_K_M")) &&
        gets_more_bits(layer, sizes.n_layers)) {
        return q6_k;
    }
    if (named(wanted, "Q4_K_S") && layer < 4) {
        return q5_k;
    }
    return wanted.base;
}

TensorType ffn_down_type(const FileType& wanted, int64_t layer, const TextEncoderSizes& sizes) {
    const int64_t n_layers = sizes.n_layers;
    if (named(wanted, "Q2_K")) {
        return q3_k;
    }
    if (named(wanted, "Q3_K_M")) {
        return layer < n_layers / 16 ? q5_k : q4_k;
    }
    if ((named(wanted, "Q4_K_M") || named(wanted, "Q5_K_M")) && gets_more_bits(layer, n_layers)) {
        return q6_k;
    }
    const bool early = layer < n_layers / 8;
    if (early && (wanted.base == iq4_nl || wanted.base == iq4_xs || named(wanted, "Q4_K_S"))) {
        return q5_k;
    }
    return wanted.base;
}

TensorType attention_output_type(const FileType& wanted) {
    if (named(wanted, "Q2_K")) {
        return q3_k;
    }
    return named(wanted, "Q3_K_M") ? q4_k : wanted.base;
}

// The types that llama.cpp's quantizer chooses for a dense model without an importance matrix.
TensorType text_encoder_type(const FileType& wanted, const ExpectedTensor& tensor,
                             const TextEncoderSizes& sizes, bool tied_embeddings) {
    const std::string& name = tensor.name;
    if (!is_quantized(wanted.base)) {
        return wanted.base;
    }
    if (name == "output.weight" || (name == "token_embd.weight" && tied_embeddings)) {
        const bool fits = tensor.shape.ne[0] % block_elements(wanted.base) == 0;
        return wanted.base == q8_0 || wanted.base == mxfp4 || !fits ? q8_0 : q6_k;
    }
    if (!name.starts_with("blk.")) {
        return wanted.base;
    }
    const int64_t layer = std::atoll(name.c_str() + 4);
    if (name.ends_with(".attn_v.weight")) {
        return attention_v_type(wanted, layer, sizes);
    }
    if (name.ends_with(".ffn_down.weight")) {
        return ffn_down_type(wanted, layer, sizes);
    }
    if (name.ends_with(".attn_output.weight")) {
        return attention_output_type(wanted);
    }
    return wanted.base;
}

// The replacement for a type whose block length does not divide the row length: llama.cpp's choice
// of a type with short blocks, else 16 bits.
TensorType fallback(TensorType type, int64_t row) {
    const auto fits = [&](TensorType t) { return row % block_elements(t) == 0; };
    TensorType other = type;
    switch (type) {
        case iq4_xs:
            other = iq4_nl;
            break;
        case q2_k:
        case q3_k:
            other = q4_0;
            break;
        case q4_k:
            other = q5_0;
            break;
        case q5_k:
            other = q5_1;
            break;
        case q6_k:
            other = q8_0;
            break;
        default:
            break;
    }
    return fits(other) ? other : bf16;
}

}  // namespace

const FileType& parse_file_type(const std::string& name) {
    const FileType* found = find_file_type(name);
    check(found != nullptr, ErrorKind::bad_argument, "unknown type '", name, "'; choose one of ",
          known_types());
    return *found;
}

const FileType& plain_file_type(TensorType base) {
    const auto* found = std::find_if(kFileTypes.begin(), kFileTypes.end(), [&](const FileType& t) {
        return t.base == base && !std::string_view(t.name).ends_with("_M");
    });
    check(found != kFileTypes.end(), ErrorKind::internal, "no file type for ", type_name(base));
    return *found;
}

TypeOverride parse_type_override(const std::string& text) {
    const size_t equals = text.rfind('=');
    check(equals != std::string::npos && equals > 0, ErrorKind::bad_argument, "--tensor-type ",
          text, " is not of the form REGEX=TYPE, such as 'txt_in=Q8_0'");
    const std::string name = to_upper(text.substr(equals + 1));
    const TensorType* bare = find_bare(name);
    const TensorType type = bare != nullptr ? *bare : parse_file_type(name).base;
    try {
        return {text, std::regex(text.substr(0, equals)), type};
    } catch (const std::regex_error& error) {
        fail(ErrorKind::bad_argument, "--tensor-type ", text, ": ", text.substr(0, equals),
             " is not a regular expression: ", error.what());
    }
}

TypeChoice choose_type(const TypeRequest& request, Part part, const ExpectedTensor& tensor,
                       TensorType source_type, const TextEncoderSizes& sizes,
                       bool tied_embeddings) {
    // Norms, biases and statistics.
    if (tensor.shape.n_dims < 2) {
        return {.type = f32, .wanted = {}, .open = false};
    }
    const FileType& wanted = *request.file_type;
    TensorType type = wanted.base;
    switch (part) {
        case Part::transformer:
            type = transformer_type(wanted, tensor.name, source_type);
            break;
        case Part::text_encoder:
            type = text_encoder_type(wanted, tensor, sizes, tied_embeddings);
            break;
        case Part::vae:
        case Part::tiny_autoencoder:
            // Rows of a 3x3 filter have 3 values: no block type fits.
            type = is_quantized(wanted.base) ? f16 : wanted.base;
            break;
    }
    bool open = is_block_matrix(part, tensor);
    for (const TypeOverride& override : request.overrides) {
        if (std::regex_search(tensor.name, override.pattern)) {
            type = override.type;
            open = false;
            break;
        }
    }
    if (tensor.shape.ne[0] % block_elements(type) == 0) {
        return {.type = type, .wanted = {}, .open = open};
    }
    return {.type = fallback(type, tensor.shape.ne[0]), .wanted = type, .open = open};
}

}  // namespace flux2::convert
