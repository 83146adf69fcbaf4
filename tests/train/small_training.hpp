// Small random transformers and examples for tests of training.
#pragma once

#include "checkpoints/checkpoint.hpp"
#include "models/transformer.hpp"
#include "networks/tensor_list.hpp"
#include "pipeline/latents.hpp"
#include "support/small_transformer.hpp"
#include "support/support.hpp"
#include "support/values.hpp"
#include "train/training_pass.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <vector>

namespace flux2::test {

inline HostTensor noise_tensor(int64_t width, int64_t n, uint32_t seed) {
    HostTensor x({width, n, 1, 1});
    x.data = even_values(x.data.size(), seed, 1.7f);
    return x;
}

inline TransformerSizes trained_sizes(bool guidance) {
    return small_transformer(2, 2, guidance);
}

// A random transformer in a file. Matrices keep the size of what they are multiplied with.
inline void write_transformer(const std::filesystem::path& path, const TransformerSizes& sizes,
                              std::optional<TensorType> rounded = std::nullopt) {
    std::vector<TestTensor> tensors;
    uint32_t seed = 1;
    for (const ExpectedTensor& expected : tensor_list(sizes)) {
        const auto n = static_cast<size_t>(expected.shape.elements());
        const bool is_matrix = expected.shape.n_dims == 2;
        const float size =
            is_matrix ? std::sqrt(3.0f / static_cast<float>(expected.shape.ne[0])) : 1.0f;
        std::vector<float> values = even_values(n, seed++, size);
        if (!is_matrix) {
            for (float& value : values) {
                value = 1 + value / 2;
            }
        } else if (rounded && expected.shape.ne[0] % block_elements(*rounded) == 0) {
            Bytes bytes(data_bytes(*rounded, expected.shape.elements()));
            from_f32(*rounded, values, expected.shape.ne[0], bytes);
            to_f32(*rounded, bytes, values);
        }
        tensors.push_back(tensor_of(expected, bytes_of(values)));
    }
    write_file(path, safetensors_of(tensors));
}

inline TrainingExample small_example(const TransformerSizes& sizes, bool has_references) {
    TrainingExample example = {.picture = {noise_tensor(sizes.channels, 6, 100), 2, 3},
                               .noise = noise_tensor(sizes.channels, 6, 101),
                               .time = 0.6f,
                               .txt = share(noise_tensor(sizes.text_width, 5, 102)),
                               .guidance = 2.5f};
    if (has_references) {
        example.references = {{noise_tensor(sizes.channels, 4, 103), 2, 2},
                              {noise_tensor(sizes.channels, 3, 104), 1, 3}};
    }
    return example;
}

inline void fill_pairs(TrainedAdapter& adapter) {
    const std::vector<float> values = even_values(adapter.parameters().size(), 7, 0.2f);
    std::copy(values.begin(), values.end(), adapter.parameters().begin());
}

// What a transformer is given for an example.
inline TransformerInput model_input(const TrainingExample& example) {
    TransformerInput input;
    input.img = add_noise(example.picture.tokens, example.noise, example.time);
    input.txt = example.txt;
    input.txt_pos = text_positions(example.txt->ne[1]);
    input.img_pos = image_positions(example.picture.width, example.picture.height);
    input.ref = HostTensor({example.picture.tokens.ne[0], 0, 1, 1});
    for (size_t i = 0; i < example.references.size(); ++i) {
        const LatentGrid& grid = example.references[i];
        input.ref.data.insert(input.ref.data.end(), grid.tokens.data.begin(),
                              grid.tokens.data.end());
        input.ref.ne[1] += grid.tokens.ne[1];
        for (const Position& position :
             image_positions(grid.width, grid.height, reference_time(i))) {
            input.ref_pos.push_back(position);
        }
    }
    input.timestep = example.time;
    input.guidance = example.guidance;
    return input;
}

// Compares the gradients, times 0.5, of each matrix of each pair with differences of the loss.
inline void check_by_differences(TrainingPass& pass, TrainedAdapter& adapter,
                                 const TrainingExample& example) {
    std::vector<float> gradients(adapter.parameters().size());
    const double loss = pass.add_gradients(example, 0.5f, gradients);
    const std::span<float> parameters = adapter.parameters();
    std::vector<float> unused(gradients.size());
    for (const TrainedModule& module : adapter.modules()) {
        for (const TrainedMatrix& matrix : {module.a, module.b, module.w1}) {
            if (!matrix.exists()) {
                continue;
            }
            const size_t first = matrix.first, last = matrix.end();
            CAPTURE(module.name);
            CAPTURE(first);
            // Along the gradient itself, so that the loss changes by much more than its
            // rounding.
            double norm = 0;
            for (size_t i = first; i < last; ++i) {
                norm += std::pow(static_cast<double>(gradients[i]), 2);
            }
            norm = std::sqrt(norm);
            REQUIRE(norm > 0);
            const double step = 0.02;
            const std::vector<float> before(parameters.begin(), parameters.end());
            const auto loss_at = [&](double distance) {
                for (size_t i = first; i < last; ++i) {
                    parameters[i] =
                        before[i] +
                        static_cast<float>(distance * static_cast<double>(gradients[i]) / norm);
                }
                const double value = adapter.dropout() > 0 ? pass.add_gradients(example, 0, unused)
                                                           : pass.loss(example);
                std::copy(before.begin(), before.end(), parameters.begin());
                return value;
            };
            // Of fourth order: (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h
            const double slope =
                (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) /
                (12 * step);
            // The loss is rounded at 1e-7 of itself; the gradients have the weight 0.5.
            const double rounding = 2e-6 * loss / step;
            CHECK(std::abs(slope * 0.5 - norm) < 1e-3 * norm + rounding);
        }
    }
}

// A transformer in a folder of its own, opened.
struct OpenedModel {
    OpenedModel(const TransformerSizes& sizes, std::optional<TensorType> rounded = std::nullopt)
        : checkpoint([&] {
              write_transformer(folder / "model.safetensors", sizes, rounded);
              return Checkpoint::open(folder / "model.safetensors");
          }()) {}

    TemporaryFolder folder;
    Checkpoint checkpoint;
};

}  // namespace flux2::test
