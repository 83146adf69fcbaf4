#include "train/trainer.hpp"

#include "base/check.hpp"
#include "base/random.hpp"
#include "train/chunks.hpp"
#include "train/counted_random.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace flux2 {
namespace {

// Noise levels of validation, spread over those where a picture is made.
constexpr int kValidationLevels = 8;
constexpr double kFirstLevel = 0.15, kLastLevel = 0.98;

HostTensor noise_like(const HostTensor& tokens, uint64_t seed, int n_threads) {
    HostTensor noise(tokens.ne);
    noise.data = draw_normal(Generator::cuda_f32, seed, noise.data.size(), n_threads);
    return noise;
}

void check_cancel(const std::atomic<bool>* cancel) {
    check(cancel == nullptr || !cancel->load(), ErrorKind::cancelled, "the training was stopped");
}

}  // namespace

Trainer::Trainer(TrainingPass& pass, TrainedAdapter& adapter, const TrainingData& data,
                 DataOrder order, const TrainerOptions& options)
    : pass_(pass),
      adapter_(adapter),
      data_(data),
      order_(std::move(order)),
      options_(options),
      optimiser_(adapter.parameters().size(), options.optimiser),
      gradients_(adapter.parameters().size()) {
    if (options.ema_decay > 0) {
        average_.assign(adapter.parameters().begin(), adapter.parameters().end());
    }
}

TrainingExample Trainer::example_of(size_t picture, int64_t batch, size_t index) const {
    const EncodedPicture& encoded = data_.pictures[picture];
    const auto a = static_cast<uint64_t>(batch);
    const uint64_t b = index;
    const bool is_mirrored =
        options_.flips && random_uniform(options_.seed, RandomUse::flip, a, b) < 0.5;
    const bool has_no_caption =
        options_.caption_dropout > 0 &&
        random_uniform(options_.seed, RandomUse::caption_dropout, a, b) < options_.caption_dropout;
    TrainingExample example;
    example.picture = is_mirrored ? *encoded.mirrored : encoded.latents;
    const HostTensor& tokens = example.picture.tokens;
    example.noise =
        noise_like(tokens, random_bits(options_.seed, RandomUse::noise, a, b), options_.n_threads);
    example.time = static_cast<float>(
        draw_noise_level(options_.noise_levels, options_.seed, a, b, tokens.ne[1]));
    example.txt = has_no_caption ? data_.no_caption : encoded.txt;
    example.references = encoded.references;
    example.dropout_seed = random_bits(options_.seed, RandomUse::network_dropout, a, b);
    return example;
}

StepResult Trainer::step(const std::atomic<bool>* cancel) {
    StepResult result;
    result.step = n_done_ + 1;
    result.learning_rate = rate_of_step(options_.rate, n_done_, options_.n_steps);
    for_chunks(gradients_.size(), options_.n_threads, [&](size_t first, size_t n, size_t) {
        std::fill_n(gradients_.begin() + static_cast<std::ptrdiff_t>(first), n, 0.0f);
    });
    const int64_t n_batches = options_.gradient_accumulation_steps;
    result.epoch = n_done_ * n_batches / order_.batches_per_epoch() + 1;
    for (int64_t i = 0; i < n_batches; ++i) {
        const int64_t number = n_done_ * n_batches + i;
        const std::vector<size_t> pictures = order_.batch(number);
        const double share =
            1 / static_cast<double>(n_batches) / static_cast<double>(pictures.size());
        for (size_t k = 0; k < pictures.size(); ++k) {
            check_cancel(cancel);
            const TrainingExample example = example_of(pictures[k], number, k);
            const double time = static_cast<double>(example.time);
            const double weight = share * loss_weight(options_.noise_levels.weighting, time);
            const double loss =
                pass_.add_gradients(example, static_cast<float>(weight), gradients_);
            result.loss += weight * loss;
            result.examples.push_back({time, loss});
        }
    }
    const double largest =
        options_.max_grad_norm > 0 ? options_.max_grad_norm : std::numeric_limits<double>::max();
    result.gradient_norm = clip_gradients(gradients_, largest, options_.n_threads);
    check(std::isfinite(result.loss) && std::isfinite(result.gradient_norm),
          ErrorKind::bad_argument, "the loss of step ", result.step, " is ", result.loss,
          " and its gradients have norm ", result.gradient_norm,
          "; begin again with a lower learning_rate");
    optimiser_.step(adapter_.parameters(), gradients_, result.learning_rate, options_.n_threads);
    const auto decay = static_cast<float>(options_.ema_decay);
    const std::span<const float> parameters = adapter_.parameters();
    for_chunks(average_.size(), options_.n_threads, [&](size_t first, size_t n, size_t) {
        for (size_t i = first; i < first + n; ++i) {
            average_[i] = decay * average_[i] + (1 - decay) * parameters[i];
        }
    });
    ++n_done_;
    return result;
}

TrainingStateView Trainer::state(const RunSettings& settings) const {
    return {.n_steps = n_done_,
            .settings = settings,
            .parameters = adapter_.parameters(),
            .optimiser = optimiser_.state(),
            .average = average_};
}

void Trainer::restore(TrainingState state) {
    const std::span<float> parameters = adapter_.parameters();
    check(state.parameters.size() == parameters.size() && state.average.size() == average_.size(),
          ErrorKind::bad_file, "the state has ", state.parameters.size(),
          " parameters, the adapter ", parameters.size(), "; resume with the same settings");
    std::copy(state.parameters.begin(), state.parameters.end(), parameters.begin());
    optimiser_.restore(std::move(state.optimiser));
    average_ = std::move(state.average);
    n_done_ = state.n_steps;
}

Trainer::ResultValues::ResultValues(Trainer& trainer) : trainer_(trainer) {
    swap();
}

Trainer::ResultValues::~ResultValues() {
    swap();
}

void Trainer::ResultValues::swap() {
    std::swap_ranges(trainer_.average_.begin(), trainer_.average_.end(),
                     trainer_.adapter_.parameters().begin());
}

double Trainer::validation_loss(const TrainingData& held_out, const std::atomic<bool>* cancel) {
    const ResultValues values(*this);
    double sum = 0;
    for (size_t i = 0; i < held_out.pictures.size(); ++i) {
        const EncodedPicture& encoded = held_out.pictures[i];
        TrainingExample example;
        example.picture = encoded.latents;
        example.txt = encoded.txt;
        example.references = encoded.references;
        for (int level = 0; level < kValidationLevels; ++level) {
            check_cancel(cancel);
            // The same for every run, whatever its seed, so that runs can be compared.
            example.noise = noise_like(
                encoded.latents.tokens,
                random_bits(0, RandomUse::validation_noise, i, static_cast<uint64_t>(level)),
                options_.n_threads);
            example.time = static_cast<float>(kFirstLevel + (kLastLevel - kFirstLevel) * level /
                                                                (kValidationLevels - 1));
            sum += pass_.loss(example);
        }
    }
    return sum / static_cast<double>(held_out.pictures.size() * kValidationLevels);
}

}  // namespace flux2
