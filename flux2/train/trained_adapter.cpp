#include "train/trained_adapter.hpp"

#include "base/check.hpp"
#include "networks/tensor_list.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <regex>
#include <utility>

namespace flux2 {
namespace {

constexpr std::string_view kWeight = ".weight";

bool is_in_block(const std::string& name) {
    return name.starts_with("double_blocks.") || name.starts_with("single_blocks.");
}

// Gradients reach the matrices of the blocks, and those right before and after them. What depends
// on the time alone (modulation, embedders) is not trained.
bool can_be_trained(const ExpectedTensor& tensor) {
    return tensor.shape.n_dims == 2 &&
           (is_in_block(tensor.name) || tensor.name == "img_in.weight" ||
            tensor.name == "txt_in.weight" || tensor.name == "final_layer.linear.weight");
}

struct Pattern {
    std::string text;
    std::regex expression;
    bool found = false;

    bool is_in(const std::string& name) {
        const bool is = std::regex_search(name, expression);
        found = found || is;
        return is;
    }
};

std::vector<Pattern> compile(const std::vector<std::string>& texts) {
    std::vector<Pattern> patterns;
    for (const std::string& text : texts) {
        try {
            patterns.push_back({text, std::regex(text)});
        } catch (const std::regex_error&) {
            fail(ErrorKind::bad_argument, "'", text,
                 "' is no regular expression; write for example single_blocks or "
                 "double_blocks\\.[0-3]\\.");
        }
    }
    return patterns;
}

void check_all_found(const std::vector<Pattern>& patterns, const char* use) {
    for (const Pattern& pattern : patterns) {
        check(pattern.found, ErrorKind::bad_argument, "the pattern '", pattern.text,
              "' of what to ", use,
              " is in the name of no matrix that can be trained; names are such as "
              "double_blocks.0.img_attn.qkv and single_blocks.0.linear1");
    }
}

std::vector<ExpectedTensor> choose(const TransformerSizes& sizes, const AdapterChoice& choice) {
    std::vector<Pattern> include = compile(choice.include);
    std::vector<Pattern> exclude = compile(choice.exclude);
    std::vector<ExpectedTensor> chosen;
    for (ExpectedTensor& tensor : tensor_list(sizes)) {
        if (!can_be_trained(tensor)) {
            continue;
        }
        const bool in_block = is_in_block(tensor.name);
        tensor.name.resize(tensor.name.size() - kWeight.size());
        // All patterns are tried, to find those that match nothing.
        const auto match = [&](std::vector<Pattern>& patterns) {
            return std::count_if(patterns.begin(), patterns.end(),
                                 [&](Pattern& pattern) { return pattern.is_in(tensor.name); }) > 0;
        };
        const bool is_usual =
            choice.matrices.empty() ? in_block : choice.matrices.contains(tensor.name);
        const bool included = match(include) || (include.empty() && is_usual);
        if (!match(exclude) && included) {
            chosen.push_back(std::move(tensor));
        }
    }
    check_all_found(include, "train");
    check_all_found(exclude, "leave out");
    check(!chosen.empty(), ErrorKind::bad_argument,
          "no matrix that can be trained is left; choose more of them");
    return chosen;
}

// The sizes of both factors of a LoKr, the smaller first, as LyCORIS chooses them.
std::pair<int64_t, int64_t> split_size(int64_t size, int64_t factor) {
    if (factor > 0 && size % factor == 0) {
        return std::minmax({factor, size / factor});
    }
    int64_t first = 1;
    for (int64_t i = 2; i * i <= size && (factor < 0 || i <= factor); ++i) {
        first = size % i == 0 ? i : first;
    }
    return {first, size / first};
}

std::string kohya_name(std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return "lora_unet_" + name;
}

}  // namespace

TrainedAdapter::TrainedAdapter(const TransformerSizes& sizes, const AdapterChoice& choice)
    : kind_(choice.kind),
      factor_(choice.factor),
      rank_(choice.rank.value_or(kUsualRank)),
      alpha_(choice.alpha.value_or(static_cast<double>(rank_))),
      dropout_(choice.dropout) {
    constexpr int64_t kMaxRank = 1024;
    check(rank_ >= 1 && rank_ <= kMaxRank, ErrorKind::bad_argument, "the rank ", rank_,
          " is out of range; 1 to ", kMaxRank, " make sense");
    check(std::isfinite(alpha_) && alpha_ > 0, ErrorKind::bad_argument, "alpha ", alpha_,
          " makes no sense; use a number above 0");
    check(dropout_ >= 0 && dropout_ < 1, ErrorKind::bad_argument, "a dropout of ", dropout_,
          " makes no sense; use 0 to below 1");
    check(dropout_ == 0 || kind_ == NetworkKind::lora, ErrorKind::bad_argument,
          "dropout is between the two matrices of a LoRA, and a LoKr has no such place; leave it "
          "out or train a LoRA");
    check(factor_ == -1 || factor_ >= 1, ErrorKind::bad_argument, "the LoKr factor ", factor_,
          " makes no sense; use 1 or more, or -1 for the nearest to a square root");
    for (const ExpectedTensor& tensor : choose(sizes, choice)) {
        add_module(tensor.name, tensor.shape.ne[0], tensor.shape.ne[1]);
    }
    draw(choice.seed);
}

void TrainedAdapter::add_module(const std::string& name, int64_t n_in, int64_t n_out) {
    TrainedModule module;
    module.name = name;
    module.n_in = n_in;
    module.n_out = n_out;
    const auto add = [&](TrainedMatrix& matrix, int64_t columns, int64_t rows) {
        matrix = {parameters_.size(), columns, rows};
        parameters_.resize(matrix.end());
    };
    if (kind_ == NetworkKind::lora) {
        add(module.a, n_in, rank_);
        add(module.b, rank_, n_out);
    } else {
        const auto [i1, i2] = split_size(n_in, factor_);
        const auto [o1, o2] = split_size(n_out, factor_);
        add(module.w1, i1, o1);
        if (2 * rank_ < std::max(i2, o2)) {
            add(module.a, i2, rank_);
            add(module.b, rank_, o2);
        } else {
            add(module.a, i2, o2);
        }
    }
    modules_.push_back(std::move(module));
}

void TrainedAdapter::draw(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto fill = [&](const TrainedMatrix& matrix) {
        const double most = 1 / std::sqrt(static_cast<double>(matrix.n_in));
        for (size_t i = matrix.first; i < matrix.end(); ++i) {
            // 24 bits, which a float holds; the standard's distributions differ between libraries.
            const double share = static_cast<double>(random() >> 40) / (1 << 24);
            parameters_[i] = static_cast<float>((2 * share - 1) * most);
        }
    };
    for (const TrainedModule& module : modules_) {
        if (kind_ == NetworkKind::lora) {
            fill(module.a);
        } else {
            fill(module.w1);
            if (module.b.exists()) {
                fill(module.b);
            }
        }
    }
}

EncodedTensor TrainedAdapter::encoded(const std::string& name, const TrainedMatrix& matrix,
                                      float factor, TensorType type) const {
    std::vector<float> values(matrix.size());
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = factor * parameters_[matrix.first + i];
    }
    EncodedTensor tensor = {name, type, {matrix.n_out, matrix.n_in}, {}};
    const auto n = static_cast<int64_t>(values.size());
    tensor.bytes.resize(data_bytes(type, n));
    from_f32(type, values, n, tensor.bytes);
    return tensor;
}

void TrainedAdapter::write(const std::filesystem::path& path, AdapterForm form,
                           const std::map<std::string, std::string>& metadata,
                           TensorType type) const {
    const bool is_kohya = form == AdapterForm::kohya;
    std::vector<EncodedTensor> tensors;
    for (const TrainedModule& module : modules_) {
        const std::string name =
            is_kohya ? kohya_name(module.name) : "diffusion_model." + module.name;
        const auto add = [&](const char* role, const TrainedMatrix& matrix, float factor) {
            tensors.push_back(encoded(name + role, matrix, factor, type));
        };
        const float factor = is_kohya ? 1.0f : scale(module);
        if (kind_ == NetworkKind::lora) {
            add(is_kohya ? ".lora_down.weight" : ".lora_A.weight", module.a, 1);
            add(is_kohya ? ".lora_up.weight" : ".lora_B.weight", module.b, factor);
        } else {
            add(".lokr_w1", module.w1, factor);
            add(module.b.exists() ? ".lokr_w2_b" : ".lokr_w2", module.a, 1);
            if (module.b.exists()) {
                add(".lokr_w2_a", module.b, 1);
            }
        }
        if (is_kohya) {
            EncodedTensor alpha = {name + ".alpha", TensorType::f32, {}, {}};
            alpha.bytes.resize(sizeof(float));
            // Without a rank it has no meaning; readers then take any for 1.
            const float value =
                static_cast<float>(module.b.exists() ? alpha_ : static_cast<double>(rank_));
            std::memcpy(alpha.bytes.data(), &value, sizeof(value));
            tensors.push_back(std::move(alpha));
        }
    }
    write_safetensors(path, tensors, metadata);
}

}  // namespace flux2
