#include "train/training_pass.hpp"

#include "base/check.hpp"
#include "base/parallel.hpp"
#include "checkpoints/inventory.hpp"
#include "compute/ops/gradient_ops.hpp"
#include "models/transformer.hpp"
#include "pipeline/latents.hpp"
#include "train/frozen_network.hpp"
#include "train/network_dropout.hpp"
#include "train/pair_transfer.hpp"
#include "train/training_graph.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace flux2 {
namespace {

// ---- Examples ----

void check_grid(const LatentGrid& grid, const char* what, int64_t channels) {
    const int64_t n = grid.height * grid.width;
    check(grid.height >= 1 && grid.width >= 1 && grid.tokens.ne[0] == channels &&
              grid.tokens.ne[1] == n &&
              grid.tokens.data.size() == static_cast<size_t>(channels * n),
          ErrorKind::bad_argument, "the ", what, " has ", grid.tokens.ne[1], " tokens of ",
          grid.tokens.ne[0], " channels for a grid of ", grid.width, " x ", grid.height,
          "; the transformer takes ", channels, " channels and a token per place");
}

void check_example(const TrainingExample& example, const TransformerSizes& sizes) {
    check_grid(example.picture, "picture", sizes.channels);
    for (const LatentGrid& reference : example.references) {
        check_grid(reference, "reference", sizes.channels);
    }
    check(example.noise.data.size() == example.picture.tokens.data.size(), ErrorKind::bad_argument,
          "the noise has ", example.noise.data.size(), " values, the picture ",
          example.picture.tokens.data.size());
    check(example.time >= 0 && example.time <= 1, ErrorKind::bad_argument, "the time ",
          example.time, " is out of range; it is 0 to 1");
    const HostTensor& txt = *example.txt;
    check(txt.ne[0] == sizes.text_width && txt.ne[1] >= 1 &&
              txt.data.size() == static_cast<size_t>(txt.ne[0] * txt.ne[1]),
          ErrorKind::bad_argument, "the transformer takes text features ", sizes.text_width,
          " wide, not ", txt.ne[0], "; use the text encoder made for it");
}

std::vector<Position> positions_of(const TrainingExample& example) {
    std::vector<Position> all = text_positions(example.txt->ne[1]);
    const auto append = [&](const LatentGrid& grid, int32_t time) {
        const std::vector<Position> more = image_positions(grid.width, grid.height, time);
        all.insert(all.end(), more.begin(), more.end());
    };
    append(example.picture, 0);
    for (size_t i = 0; i < example.references.size(); ++i) {
        append(example.references[i], reference_time(i));
    }
    return all;
}

}  // namespace

ExampleShape shape_of(const TrainingExample& example) {
    ExampleShape shape = {
        .n_img = example.picture.tokens.ne[1], .n_ref = 0, .n_txt = example.txt->ne[1]};
    for (const LatentGrid& reference : example.references) {
        shape.n_ref += reference.tokens.ne[1];
    }
    return shape;
}

// ---- The pass ----

struct TrainingPass::State {
    State(const Backend& used, const Checkpoint& checkpoint, const TrainedAdapter& trained,
          const WeightOptions& options, Operations operations, ReferenceMode mode)
        : backend(used),
          adapter(trained),
          sizes(read_transformer_sizes(checkpoint)),
          form{.operations = operations, .activations = trained_type({.operations = operations})},
          network(backend, checkpoint, sizes, options),
          transfer(backend, adapter),
          references(mode) {}

    TrainingGraph& built_for(const ExampleShape& shape, bool wants_gradients);
    void stream_blocks(TrainingGraph& built);
    void feed(TrainingGraph& built, const TrainingExample& example) const;
    void feed_dropout(TrainingGraph& built, uint64_t seed) const;
    double run(TrainingGraph& built, const TrainingExample& example);

    const Backend& backend;
    const TrainedAdapter& adapter;
    TransformerSizes sizes;
    Form form;
    FrozenNetwork network;
    PairTransfer transfer;
    ReferenceMode references;
    std::optional<TrainingGraph> forward, both_ways;
    HostTensor velocity;
};

TrainingGraph& TrainingPass::State::built_for(const ExampleShape& shape, bool wants_gradients) {
    std::optional<TrainingGraph>& built = wants_gradients ? both_ways : forward;
    if (!built || built->shape != shape) {
        built.reset();  // gives its memory back first
        const auto n_blocks = static_cast<size_t>(sizes.n_double + sizes.n_single);
        constexpr size_t kNodesOfBlock = 1024;
        built.emplace(backend, kNodesOfBlock * (n_blocks + 2), form, shape);
        build_graph(*built, network, sizes, adapter, transfer, references, wants_gradients);
        if (network.streams()) {
            stream_blocks(*built);
        }
    }
    return *built;
}

// Forwards, then backwards; the next computation begins with the first block again.
void TrainingPass::State::stream_blocks(TrainingGraph& built) {
    built.graph.set_before_block([this, &order = built.block_order](size_t i) {
        network.enter_block(order[i], order[(i + 1) % order.size()]);
    });
}

void TrainingPass::State::feed(TrainingGraph& built, const TrainingExample& example) const {
    Graph& g = built.graph;
    const std::vector<float>& latents = example.picture.tokens.data;
    const float t = example.time;
    std::vector<float> img(latents.size());
    std::vector<float> target(latents.size());
    for (size_t i = 0; i < latents.size(); ++i) {
        img[i] = (1 - t) * latents[i] + t * example.noise.data[i];
        target[i] = example.noise.data[i] - latents[i];
    }
    for (const LatentGrid& reference : example.references) {
        img.insert(img.end(), reference.tokens.data.begin(), reference.tokens.data.end());
    }
    g.set(built.img, img);
    g.set(built.target, target);
    g.set(built.txt, example.txt->data);
    g.set(built.time, timestep_embedding(t));
    if (built.time_zero != nullptr) {
        g.set(built.time_zero, timestep_embedding(0));
    }
    if (built.guidance != nullptr) {
        g.set(built.guidance, timestep_embedding(example.guidance));
    }
    const std::vector<Position> positions = positions_of(example);
    for (size_t axis = 0; axis < built.pos.size(); ++axis) {
        std::vector<int32_t> ids;
        for (const Position& position : positions) {
            ids.push_back(position[axis]);
        }
        g.set(built.pos[axis], ids);
    }
}

void TrainingPass::State::feed_dropout(TrainingGraph& built, uint64_t seed) const {
    const size_t n = built.in_order.size();
    std::vector<std::vector<float>> factors(n);
    parallel_for(n, backend.n_threads(), [&](size_t i, size_t) {
        const ggml_tensor* input = built.in_order[i]->dropout;
        if (input != nullptr) {
            factors[i].resize(static_cast<size_t>(ggml_nelements(input)));
            draw_dropout(adapter.dropout(), seed, i, adapter.rank(), input->ne[0], factors[i]);
        }
    });
    for (size_t i = 0; i < n; ++i) {
        if (built.in_order[i]->dropout != nullptr) {
            built.graph.set(built.in_order[i]->dropout, factors[i]);
        }
    }
}

double TrainingPass::State::run(TrainingGraph& built, const TrainingExample& example) {
    feed(built, example);
    feed_dropout(built, example.dropout_seed);
    transfer.send(built.graph, built.in_order);
    built.graph.compute();
    velocity = built.graph.read(built.velocity);
    double sum = 0;
    const HostTensor difference = built.graph.read(built.difference);
    for (const float value : difference.data) {
        sum += static_cast<double>(value) * static_cast<double>(value);
    }
    return sum / static_cast<double>(difference.data.size());
}

TrainingPass::TrainingPass(const Backend& backend, const Checkpoint& checkpoint,
                           const TrainedAdapter& adapter, const WeightOptions& options,
                           std::optional<Operations> operations, ReferenceMode references) {
    check(references != ReferenceMode::cached, ErrorKind::internal,
          "references are trained with the picture, and nothing is kept of them");
    check(backend.operations() != Operations::stock, ErrorKind::unsupported,
          "LoRAs are trained on CPUs and on NVIDIA GPUs with kernels of our own, not on ",
          backend.name(), "; use ", Setting::device, " CPU");
    state_ = std::make_unique<State>(backend, checkpoint, adapter, options,
                                     operations.value_or(backend.operations()), references);
}

TrainingPass::~TrainingPass() = default;

const TransformerSizes& TrainingPass::sizes() const {
    return state_->sizes;
}

double TrainingPass::loss(const TrainingExample& example) {
    check_example(example, state_->sizes);
    return state_->run(state_->built_for(shape_of(example), false), example);
}

double TrainingPass::add_gradients(const TrainingExample& example, float weight,
                                   std::span<float> gradients) {
    check_example(example, state_->sizes);
    check(gradients.size() == state_->adapter.parameters().size(), ErrorKind::internal,
          "there are ", gradients.size(), " gradients for ", state_->adapter.parameters().size(),
          " parameters");
    TrainingGraph& built = state_->built_for(shape_of(example), true);
    const double loss = state_->run(built, example);
    state_->transfer.add_gradients(built.graph, built.in_order, weight, gradients);
    return loss;
}

const HostTensor& TrainingPass::velocity() const {
    return state_->velocity;
}

MemoryUse TrainingPass::compute_memory(const ExampleShape& shape, bool wants_gradients) {
    return state_->built_for(shape, wants_gradients).graph.memory();
}

WeightMemory TrainingPass::weight_memory() const {
    return state_->network.memory();
}

}  // namespace flux2
