#include "train/trained_adapter.hpp"

#include "base/check.hpp"
#include "formats/safetensors.hpp"
#include "networks/tensor_list.hpp"

#include <algorithm>
#include <cmath>
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

EncodedTensor encode(std::string name, TensorType type, std::vector<int64_t> shape,
                     std::span<const float> values) {
    EncodedTensor tensor = {std::move(name), type, std::move(shape), {}};
    const auto n = static_cast<int64_t>(values.size());
    tensor.bytes.resize(data_bytes(type, n));
    from_f32(type, values, n, tensor.bytes);
    return tensor;
}

std::string kohya_name(std::string name) {
    std::replace(name.begin(), name.end(), '.', '_');
    return "lora_unet_" + name;
}

}  // namespace

TrainedAdapter::TrainedAdapter(const TransformerSizes& sizes, const AdapterChoice& choice)
    : rank_(choice.rank.value_or(kUsualRank)),
      alpha_(choice.alpha.value_or(static_cast<double>(rank_))),
      dropout_(choice.dropout) {
    constexpr int64_t kMaxRank = 1024;
    check(rank_ >= 1 && rank_ <= kMaxRank, ErrorKind::bad_argument, "the rank ", rank_,
          " is out of range; 1 to ", kMaxRank, " make sense");
    check(std::isfinite(alpha_) && alpha_ > 0, ErrorKind::bad_argument, "alpha ", alpha_,
          " makes no sense; use a number above 0");
    check(dropout_ >= 0 && dropout_ < 1, ErrorKind::bad_argument, "a dropout of ", dropout_,
          " makes no sense; use 0 to below 1");
    size_t n = 0;
    for (const ExpectedTensor& tensor : choose(sizes, choice)) {
        TrainedModule module = {
            .name = tensor.name, .n_in = tensor.shape.ne[0], .n_out = tensor.shape.ne[1]};
        module.a = n;
        n += static_cast<size_t>(rank_ * module.n_in);
        module.b = n;
        n += static_cast<size_t>(rank_ * module.n_out);
        modules_.push_back(std::move(module));
    }
    parameters_.resize(n);
    draw(choice.seed);
}

void TrainedAdapter::draw(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const TrainedModule& module : modules_) {
        const double most = 1 / std::sqrt(static_cast<double>(module.n_in));
        for (size_t i = module.a; i < module.b; ++i) {
            // 24 bits, which a float holds; the standard's distributions differ between libraries.
            const double share = static_cast<double>(random() >> 40) / (1 << 24);
            parameters_[i] = static_cast<float>((2 * share - 1) * most);
        }
    }
}

void TrainedAdapter::write(const std::filesystem::path& path, AdapterForm form,
                           const std::map<std::string, std::string>& metadata,
                           TensorType type) const {
    const bool is_kohya = form == AdapterForm::kohya;
    std::vector<EncodedTensor> tensors;
    for (const TrainedModule& module : modules_) {
        const std::string name =
            is_kohya ? kohya_name(module.name) : "diffusion_model." + module.name;
        const std::span<const float> a(parameters_.data() + module.a, module.b - module.a);
        std::vector<float> b(static_cast<size_t>(rank_ * module.n_out));
        const float factor = is_kohya ? 1.0f : scale();
        for (size_t i = 0; i < b.size(); ++i) {
            b[i] = factor * parameters_[module.b + i];
        }
        tensors.push_back(encode(name + (is_kohya ? ".lora_down.weight" : ".lora_A.weight"), type,
                                 {rank_, module.n_in}, a));
        tensors.push_back(encode(name + (is_kohya ? ".lora_up.weight" : ".lora_B.weight"), type,
                                 {module.n_out, rank_}, b));
        if (is_kohya) {
            const auto alpha = static_cast<float>(alpha_);
            tensors.push_back(encode(name + ".alpha", TensorType::f32, {}, std::span(&alpha, 1)));
        }
    }
    write_safetensors(path, tensors, metadata);
}

}  // namespace flux2
