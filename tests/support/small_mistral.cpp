#include "support/small_mistral.hpp"

#include "formats/gguf_writer.hpp"
#include "text/unicode.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace flux2::test {
namespace {

constexpr double kEps = 1e-5;
constexpr double kTheta = 1e9;

// Names without their layer, and llama.cpp's for the same.
const std::vector<std::pair<std::string, std::string>> kLayerNames = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
};

// By their ids.
const std::vector<std::string> kSpecial = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};

const std::string kSplit =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string base64(std::string_view bytes) {
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t three = 0;
        for (size_t j = i; j < i + 3; ++j) {
            three = three << 8 | (j < bytes.size() ? static_cast<uint8_t>(bytes[j]) : 0u);
        }
        for (size_t j = 0; j < 4; ++j) {
            const bool filled = i + j <= bytes.size();
            text.push_back(filled ? digits[three >> (18 - 6 * j) & 63] : '=');
        }
    }
    return text;
}

std::vector<int64_t> shape_of(const std::string& name) {
    using M = SmallMistral;
    const int64_t q = M::kHeads * M::kHeadDim;
    const int64_t kv = M::kHeadsKv * M::kHeadDim;
    const std::map<std::string, std::vector<int64_t>> shapes = {
        {"self_attn.q_proj.weight", {M::kHidden, q}},
        {"self_attn.k_proj.weight", {M::kHidden, kv}},
        {"self_attn.v_proj.weight", {M::kHidden, kv}},
        {"self_attn.o_proj.weight", {q, M::kHidden}},
        {"mlp.gate_proj.weight", {M::kHidden, M::kFfn}},
        {"mlp.up_proj.weight", {M::kHidden, M::kFfn}},
        {"mlp.down_proj.weight", {M::kFfn, M::kHidden}},
    };
    const auto found = shapes.find(name);
    return found == shapes.end() ? std::vector<int64_t>{M::kHidden} : found->second;
}

TestTensor random_tensor(const std::string& name, const std::vector<int64_t>& shape,
                         uint32_t& state) {
    const bool is_norm = shape.size() == 1;
    int64_t n = 1;
    for (const int64_t size : shape) {
        n *= size;
    }
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<int32_t>(state)) / 1.2e10f + (is_norm ? 1.0f : 0.0f);
    }
    return {name, shape, bytes_of(values), TensorType::f32};
}

std::string layer_name(int64_t layer, const std::string& name) {
    return "model.layers." + std::to_string(layer) + "." + name;
}

// As llama.cpp's converter does it: rows (head, half, i) go to (head, i, half).
TestTensor permuted(const TestTensor& tensor) {
    constexpr size_t kHalf = SmallMistral::kHeadDim / 2;
    const size_t row = static_cast<size_t>(tensor.shape[0]) * sizeof(float);
    const size_t n_heads = tensor.data.size() / row / (2 * kHalf);
    TestTensor result = tensor;
    for (size_t head = 0; head < n_heads; ++head) {
        for (size_t half = 0; half < 2; ++half) {
            for (size_t i = 0; i < kHalf; ++i) {
                const size_t from = head * 2 * kHalf + half * kHalf + i;
                const size_t to = head * 2 * kHalf + 2 * i + half;
                std::memcpy(&result.data[to * row], &tensor.data[from * row], row);
            }
        }
    }
    return result;
}

Row multiply(const Rows& matrix, const Row& x) {
    Row y(matrix.size());
    for (size_t i = 0; i < matrix.size(); ++i) {
        for (size_t j = 0; j < x.size(); ++j) {
            y[i] += matrix[i][j] * x[j];
        }
    }
    return y;
}

Rows multiply(const Rows& matrix, const Rows& tokens) {
    Rows result;
    for (const Row& x : tokens) {
        result.push_back(multiply(matrix, x));
    }
    return result;
}

Rows normalised(const Rows& tokens, const Row& weight) {
    Rows result = tokens;
    for (Row& x : result) {
        double squares = 0;
        for (const double value : x) {
            squares += value * value;
        }
        const double rms = std::sqrt(squares / static_cast<double>(x.size()) + kEps);
        for (size_t i = 0; i < x.size(); ++i) {
            x[i] = x[i] / rms * weight[i];
        }
    }
    return result;
}

// Half-split RoPE on every head of every token.
void turn(Rows& tokens) {
    constexpr size_t kHalf = SmallMistral::kHeadDim / 2;
    for (size_t p = 0; p < tokens.size(); ++p) {
        for (size_t head = 0; head < tokens[p].size(); head += 2 * kHalf) {
            for (size_t i = 0; i < kHalf; ++i) {
                const double angle = static_cast<double>(p) *
                                     std::pow(kTheta, -static_cast<double>(i) / double{kHalf});
                double& a = tokens[p][head + i];
                double& b = tokens[p][head + i + kHalf];
                const Row turned = {a * std::cos(angle) - b * std::sin(angle),
                                    b * std::cos(angle) + a * std::sin(angle)};
                a = turned[0];
                b = turned[1];
            }
        }
    }
}

void add(Rows& tokens, const Rows& others) {
    for (size_t i = 0; i < tokens.size(); ++i) {
        for (size_t j = 0; j < tokens[i].size(); ++j) {
            tokens[i][j] += others[i][j];
        }
    }
}

// softmax(q k^T / sqrt(head size)) v over the tokens up to this one that are no padding; zero when
// there are none.
Row attend(const Rows& q, const Rows& k, const Rows& v, size_t token, size_t n_padding) {
    constexpr auto kHead = static_cast<size_t>(SmallMistral::kHeadDim);
    constexpr auto kShared = static_cast<size_t>(SmallMistral::kHeads / SmallMistral::kHeadsKv);
    Row result(q[token].size());
    for (size_t head = 0; head < result.size() / kHead; ++head) {
        const size_t from = head / kShared * kHead;
        std::vector<double> weights;
        double sum = 0;
        for (size_t j = n_padding; j <= token; ++j) {
            double score = 0;
            for (size_t i = 0; i < kHead; ++i) {
                score += q[token][head * kHead + i] * k[j][from + i];
            }
            weights.push_back(std::exp(score / std::sqrt(double{kHead})));
            sum += weights.back();
        }
        for (size_t j = 0; j < weights.size(); ++j) {
            for (size_t i = 0; i < kHead; ++i) {
                result[head * kHead + i] += weights[j] / sum * v[n_padding + j][from + i];
            }
        }
    }
    return result;
}

// silu(gate) * up
Rows gated(Rows gate, const Rows& up) {
    for (size_t token = 0; token < gate.size(); ++token) {
        for (size_t i = 0; i < gate[token].size(); ++i) {
            const double g = gate[token][i];
            gate[token][i] = g / (1 + std::exp(-g)) * up[token][i];
        }
    }
    return gate;
}

}  // namespace

SmallMistral::SmallMistral() {
    uint32_t state = 7;
    const auto put = [&](const std::string& name, const std::vector<int64_t>& shape) {
        index_[name] = tensors_.size();
        tensors_.push_back(random_tensor(name, shape, state));
    };
    put("model.embed_tokens.weight", {kHidden, kVocabulary});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
        for (const auto& [name, other] : kLayerNames) {
            put(layer_name(layer, name), shape_of(name));
        }
    }
}

std::vector<TestTensor> SmallMistral::tensors(const std::string& prefix) const {
    std::vector<TestTensor> result = tensors_;
    for (TestTensor& tensor : result) {
        tensor.name = prefix + tensor.name;
    }
    return result;
}

std::vector<TestTensor> SmallMistral::llama_tensors() const {
    std::vector<TestTensor> result = {tensors_.front()};
    result.front().name = "token_embd.weight";
    for (int64_t layer = 0; layer < kLayers; ++layer) {
        for (const auto& [name, other] : kLayerNames) {
            const TestTensor& tensor = tensors_[index_.at(layer_name(layer, name))];
            const bool turns = other == "attn_q.weight" || other == "attn_k.weight";
            result.push_back(turns ? permuted(tensor) : tensor);
            result.back().name = "blk." + std::to_string(layer) + "." + other;
        }
    }
    return result;
}

void SmallMistral::write_safetensors(const std::filesystem::path& path,
                                     const std::string& prefix) const {
    write_file(path, safetensors_of(tensors(prefix)));
    // The real one's configuration has this shape too; its other numbers are our defaults.
    write_file(path.parent_path() / "config.json",
               R"({"model_type": "mistral3", "text_config": {"head_dim": 16}})");
}

void SmallMistral::write_gguf(const std::filesystem::path& path,
                              const std::string& architecture) const {
    test::write_gguf(path, small_mistral_keys(architecture), llama_tensors());
}

Rows SmallMistral::matrix(const std::string& name) const {
    const TestTensor& tensor = tensors_[index_.at(name)];
    std::vector<float> values(tensor.data.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    Rows rows;
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(tensor.shape[0])) {
        rows.emplace_back(values.begin() + static_cast<int64_t>(i),
                          values.begin() + static_cast<int64_t>(i) + tensor.shape[0]);
    }
    return rows;
}

std::vector<Rows> SmallMistral::hidden_states(const std::vector<int32_t>& ids,
                                              size_t n_padding) const {
    const Rows embeddings = matrix("model.embed_tokens.weight");
    Rows x;
    for (const int32_t id : ids) {
        x.push_back(embeddings[static_cast<size_t>(id)]);
    }
    std::vector<Rows> states = {x};
    for (int64_t layer = 0; layer < kLayers; ++layer) {
        const auto of = [&](const char* name) { return matrix(layer_name(layer, name)); };
        const Rows a = normalised(x, of("input_layernorm.weight")[0]);
        Rows q = multiply(of("self_attn.q_proj.weight"), a);
        Rows k = multiply(of("self_attn.k_proj.weight"), a);
        const Rows v = multiply(of("self_attn.v_proj.weight"), a);
        turn(q);
        turn(k);
        Rows attended;
        for (size_t token = 0; token < x.size(); ++token) {
            attended.push_back(attend(q, k, v, token, n_padding));
        }
        add(x, multiply(of("self_attn.o_proj.weight"), attended));
        const Rows b = normalised(x, of("post_attention_layernorm.weight")[0]);
        const Rows inner =
            gated(multiply(of("mlp.gate_proj.weight"), b), multiply(of("mlp.up_proj.weight"), b));
        add(x, multiply(of("mlp.down_proj.weight"), inner));
        states.push_back(x);
    }
    return states;
}

std::string small_tekken_json() {
    nlohmann::json json = {{"model", {{"type", "BPE"}, {"ignore_merges", true}}}};
    for (size_t id = 0; id < kSpecial.size(); ++id) {
        json["added_tokens"].push_back({{"id", id}, {"content", kSpecial[id]}, {"special", true}});
    }
    nlohmann::json& vocabulary = json["model"]["vocab"];
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                               (byte >= 0xAE && byte <= 0xFF);
        const auto symbol = static_cast<char32_t>(printable ? byte : next++);
        vocabulary[to_utf8(std::u32string(1, symbol))] = kFirstByte + byte;
    }
    vocabulary["ca"] = kCa;
    vocabulary["\u0120cat"] = kSpaceCat;
    json["model"]["merges"] = {"c a"};
    json["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", kSplit}}}}, {{"type", "ByteLevel"}}}}};
    return json.dump();
}

std::string small_tekken_file(const std::vector<std::string>& words) {
    nlohmann::json json;
    for (size_t id = 0; id < kSpecial.size(); ++id) {
        json["special_tokens"].push_back(
            {{"rank", id}, {"token_str", kSpecial[id]}, {"is_control", true}});
    }
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) {
        tokens.emplace_back(1, static_cast<char>(byte));
    }
    tokens.insert(tokens.end(), words.begin(), words.end());
    for (size_t rank = 0; rank < tokens.size(); ++rank) {
        json["vocab"].push_back({{"rank", rank}, {"token_bytes", base64(tokens[rank])}});
    }
    json["config"] = {{"pattern", kSplit},
                      {"default_vocab_size", kSpecial.size() + tokens.size()},
                      {"default_num_special_tokens", kSpecial.size()}};
    return json.dump();
}

Metadata small_mistral_keys(const std::string& architecture) {
    Metadata keys;
    keys.set("general.architecture", architecture);
    keys.set(architecture + ".block_count", uint32_t{SmallMistral::kLayers});
    keys.set(architecture + ".embedding_length", uint32_t{SmallMistral::kHidden});
    keys.set(architecture + ".attention.head_count", uint32_t{SmallMistral::kHeads});
    keys.set(architecture + ".attention.head_count_kv", uint32_t{SmallMistral::kHeadsKv});
    keys.set(architecture + ".attention.key_length", uint32_t{SmallMistral::kHeadDim});
    keys.set(architecture + ".attention.layer_norm_rms_epsilon", static_cast<float>(kEps));
    keys.set(architecture + ".rope.freq_base", static_cast<float>(kTheta));
    return keys;
}

void write_gguf(const std::filesystem::path& path, const Metadata& metadata,
                const std::vector<TestTensor>& tensors) {
    std::vector<GgufTensor> targets;
    for (const TestTensor& tensor : tensors) {
        Shape shape;
        shape.n_dims = static_cast<int>(tensor.shape.size());
        std::copy(tensor.shape.begin(), tensor.shape.end(), shape.ne.begin());
        targets.push_back({tensor.name, tensor.type, shape});
    }
    GgufWriter writer(path, metadata, targets);
    for (size_t i = 0; i < tensors.size(); ++i) {
        writer.write(i, 0, tensors[i].data);
    }
    writer.finish(metadata);
}

}  // namespace flux2::test
