// A training run, step by step. Everything random follows from the seed and the number of a step,
// so that a state that is restored continues the run exactly.
#pragma once

#include "train/adamw.hpp"
#include "train/data_order.hpp"
#include "train/learning_rate.hpp"
#include "train/noise_levels.hpp"
#include "train/trained_adapter.hpp"
#include "train/training_data.hpp"
#include "train/training_pass.hpp"
#include "train/training_state.hpp"

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace flux2 {

struct TrainerOptions {
    int64_t n_steps = 1600;
    int gradient_accumulation_steps = 1;  // batches of a step
    double max_grad_norm = 1;             // 0: gradients are not clipped
    LearningRate rate;
    AdamWOptions optimiser;
    NoiseLevels noise_levels;
    double caption_dropout = 0;  // the share of examples without their caption
    bool flips = false;          // half of the examples are mirrored
    double ema_decay = 0;        // 0: the result is the last step's
    uint64_t seed = 42;
    int n_threads = 1;  // of the optimiser and of noise
};

struct ExampleLoss {
    double time = 0, loss = 0;  // without the weight of its noise level
};

struct StepResult {
    int64_t step = 0;  // counted from 1
    int64_t epoch = 0;
    double loss = 0;  // the mean of its examples', with their weights
    double learning_rate = 0;
    double gradient_norm = 0;  // before clipping
    std::vector<ExampleLoss> examples;
};

class Trainer {
  public:
    // Borrows everything.
    Trainer(TrainingPass& pass, TrainedAdapter& adapter, const TrainingData& data, DataOrder order,
            const TrainerOptions& options);

    int64_t n_done() const { return n_done_; }
    bool is_finished() const { return n_done_ >= options_.n_steps; }
    // The next step. Throws cancelled once *cancel is true, and bad_argument for a loss or
    // gradients that are not finite; parameters and state are then those before the step.
    StepResult step(const std::atomic<bool>* cancel = nullptr);

    // Borrows what it shows, the settings too: valid until the next step.
    TrainingStateView state(const RunSettings& settings) const;
    // Throws bad_file when the state is of other sizes.
    void restore(TrainingState state);

    // While it exists, the adapter has the values of the result: those averaged over steps if
    // ema_decay is set, else the last.
    class ResultValues {
      public:
        explicit ResultValues(Trainer& trainer);
        ~ResultValues();
        ResultValues(const ResultValues&) = delete;
        ResultValues& operator=(const ResultValues&) = delete;

      private:
        void swap();
        Trainer& trainer_;
    };

    // The mean loss of pictures at fixed noise and levels from 0.15 to 0.98, with the result's
    // values.
    double validation_loss(const TrainingData& held_out, const std::atomic<bool>* cancel = nullptr);

  private:
    TrainingExample example_of(size_t picture, int64_t batch, size_t index) const;

    TrainingPass& pass_;
    TrainedAdapter& adapter_;
    const TrainingData& data_;
    DataOrder order_;
    const TrainerOptions options_;
    AdamW optimiser_;
    std::vector<float> gradients_;
    std::vector<float> average_;
    int64_t n_done_ = 0;
};

}  // namespace flux2
