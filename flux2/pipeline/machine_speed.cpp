#include "pipeline/machine_speed.hpp"

#include <flux2/version.hpp>
#include "base/check.hpp"
#include "base/log.hpp"
#include "base/system.hpp"
#include "formats/tensor_source.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>

namespace flux2 {
namespace {

constexpr std::array<int64_t, 7> kMeasuredTokens = {64, 128, 256, 512, 1024, 2048, 4096};
constexpr std::array<int64_t, 4> kMeasuredPixels = {64 * 64, 128 * 128, 256 * 256, 512 * 512};

// A size is not measured when the one before it tells that it would take longer than this.
constexpr double kMostSeconds = 0.4;
// Short computations are repeated until this time is over, or so often.
constexpr double kSecondsOfRuns = 0.1;
constexpr int kMostRuns = 5;

std::span<const int64_t> measured_sizes(Part part) {
    return facts_of(part).makes_latents ? std::span<const int64_t>(kMeasuredPixels)
                                        : std::span<const int64_t>(kMeasuredTokens);
}

const Checkpoint& checkpoint_of(const Model& model, Part part) {
    switch (part) {
        case Part::text_encoder:
            return *model.text_encoder;
        case Part::vae:
            return *model.vae;
        case Part::tiny_autoencoder:
            return *model.tiny;
        case Part::transformer:
            break;
    }
    return model.transformer;
}

double seconds_to(const std::function<void()>& run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// On a CPU without the time that other programs took, where the system tells.
double seconds_alone(const Backend& backend, const std::function<void()>& run) {
    const double before = cpu_seconds();
    const double seconds = seconds_to(run);
    const double used = (cpu_seconds() - before) / backend.n_threads();
    return backend.is_cpu() && used > 0 ? std::min(seconds, used) : seconds;
}

// The shortest time of every operation of a computation in several runs: more of them are not
// disturbed by other programs than of whole runs.
class OperationTimes {
  public:
    explicit OperationTimes(Backend& backend) : backend_(backend) {}

    void time(const NetworkPiece::Run& run) {
        size_t i = 0;
        backend_.set_on_operation([&](const ggml_tensor& node, double seconds) {
            const NodeWork work = work_of_node(node);
            if (work.amount == 0) {
                return;
            }
            if (i == operations_.size()) {
                operations_.push_back({work, seconds});
            }
            operations_[i].seconds = std::min(operations_[i].seconds, seconds);
            ++i;
        });
        const Unwatched after(backend_);
        run();
    }

    double seconds() const {
        double sum = 0;
        for (const Operation& operation : operations_) {
            sum += operation.seconds;
        }
        return sum;
    }

    // When all of them together take so many seconds.
    Speed speed(int64_t size, double whole_seconds) const {
        Speed speed{.size = size, .seconds = whole_seconds};
        const double scale = whole_seconds / seconds();
        WorkAmounts amounts = {};
        for (const Operation& operation : operations_) {
            const auto kind = static_cast<size_t>(operation.work.kind);
            amounts[kind] += operation.work.amount;
            speed.seconds_per[kind] += operation.seconds * scale;
        }
        for (size_t kind = 0; kind < kWorkKinds; ++kind) {
            speed.seconds_per[kind] /= amounts[kind] > 0 ? amounts[kind] : 1;
        }
        return speed;
    }

  private:
    struct Operation {
        NodeWork work;
        double seconds;
    };
    // Ends the watching when it dies, also when a run is cancelled.
    struct Unwatched {
        explicit Unwatched(Backend& b) : backend(b) {}
        ~Unwatched() { backend.set_on_operation({}); }
        Unwatched(const Unwatched&) = delete;
        Unwatched& operator=(const Unwatched&) = delete;
        Backend& backend;
    };

    Backend& backend_;
    std::vector<Operation> operations_;  // in the order of computation
};

HostTensor tensor_of(const Speed& speed) {
    HostTensor tensor({kWorkKinds + 1, 1, 1, 1});
    std::transform(speed.seconds_per.begin(), speed.seconds_per.end(), tensor.data.begin(),
                   [](double value) { return static_cast<float>(value); });
    tensor.data.back() = static_cast<float>(speed.seconds);
    return tensor;
}

// Nothing for values that no measurement gives.
std::optional<Speed> speed_from(const HostTensor& tensor, int64_t size) {
    Speed speed;
    speed.size = size;
    std::copy_n(tensor.data.begin(), kWorkKinds, speed.seconds_per.begin());
    speed.seconds = static_cast<double>(tensor.data.back());
    const bool valid = speed.seconds > 0 &&
                       std::all_of(tensor.data.begin(), tensor.data.end(),
                                   [](float value) { return value >= 0 && std::isfinite(value); });
    return valid ? std::optional(speed) : std::nullopt;
}

std::string in_words(const Speed& speed) {
    const auto giga = [&](WorkKind kind) {
        const double seconds = speed.seconds_per[static_cast<size_t>(kind)];
        return seconds > 0 ? 1e-9 / seconds : 0;
    };
    return concat(speed.seconds, " s; GFLOP/s: linear ", giga(WorkKind::linear), ", attention ",
                  giga(WorkKind::attention), ", convolutions ", giga(WorkKind::convolution),
                  "; others ", giga(WorkKind::memory), " GB/s");
}

}  // namespace

MachineSpeed::MachineSpeed(const Model& model, const LoadOptions& options, const TensorCache& cache)
    : model_(model), options_(options), cache_(cache), backends_(options) {}

Backend& MachineSpeed::backend(Part part, Placement placement, const std::string& device) {
    for (Backend* started : backends_.all()) {
        if (started->name() == device) {
            return *started;
        }
    }
    return placement == Placement::cpu ? backends_.cpu() : backends_.of(part);
}

std::string MachineSpeed::key_of(Part part, Placement placement, const Backend& used) const {
    return concat("speed by flux2 ", version(), "\n",
                  identity(checkpoint_of(model_, part).source()), "part ", to_string(part), "\non ",
                  used.name(), " ", used.description(), "\nthreads ", used.n_threads(),
                  "\noperations ", static_cast<int>(used.operations()), "\ntype ",
                  chosen_type(options_, part), "\nrepacked ", options_.repack, "\nplacement ",
                  static_cast<int>(placement), "\n");
}

std::optional<Speed> MachineSpeed::find(const std::string& key, int64_t size) const {
    if (const auto found = known_.find(key); found != known_.end()) {
        return found->second;
    }
    const auto cached = cache_.find(key, {kWorkKinds + 1, 1, 1, 1});
    return cached ? speed_from(cached->value, size) : std::nullopt;
}

Speed MachineSpeed::measure(Backend& backend, int64_t size, const NetworkPiece::Run& run) {
    ++n_measured_;
    OperationTimes operations(backend);
    double whole = std::numeric_limits<double>::max();
    double spent = 0;
    // On a device the first run loads kernels.
    const int least_runs = backend.is_cpu() ? 1 : 2;
    for (int i = 0; i < least_runs || (i < kMostRuns && spent < kSecondsOfRuns); ++i) {
        whole = std::min(whole, seconds_alone(backend, run));
        spent += whole + seconds_to([&] { operations.time(run); });
    }
    // On a device operations take longer one at a time, and copies of streamed blocks come between.
    const double best = backend.is_cpu() ? std::min(whole, operations.seconds()) : whole;
    return operations.speed(size, best);
}

Speed MachineSpeed::speed_at(Subject& subject, Timed timed, int64_t size) {
    const char* what = timed == Timed::network ? "network" : "attention";
    const std::string key = concat(subject.key, what, " ", size);
    std::optional<Speed> speed = find(key, size);
    if (!speed) {
        if (!subject.piece) {
            subject.piece = subject.make_piece();
        }
        const NetworkPiece& piece = *subject.piece;
        speed = measure(subject.backend, size,
                        timed == Timed::network ? piece.network(size) : piece.attention(size));
        cache_.store(key, tensor_of(*speed));
    }
    known_[key] = *speed;
    log(LogLevel::debug, concat("the ", to_string(subject.part), "'s ", what, " at ", size,
                                facts_of(subject.part).makes_latents ? " pixels" : " tokens",
                                " on ", subject.backend.name(), ": ", in_words(*speed)));
    return *speed;
}

Speeds MachineSpeed::speeds_up_to(Subject& subject, Timed timed, int64_t size) {
    Speeds speeds;
    for (const int64_t next : measured_sizes(subject.part)) {
        if (!speeds.empty()) {
            const Speed& last = speeds.back();
            const double growth = static_cast<double>(next) / static_cast<double>(last.size);
            const double expected =
                last.seconds * (timed == Timed::attention ? growth * growth : growth);
            if (next > size || expected > kMostSeconds) {
                break;
            }
        }
        speeds.push_back(speed_at(subject, timed, next));
    }
    return speeds;
}

NetworkSpeeds MachineSpeed::of(Part part, Placement placement, const std::string& device,
                               int64_t size, const std::function<void()>& before_measuring) {
    Backend& used = backend(part, placement, device);
    Subject subject{part, used, key_of(part, placement, used),
                    [&] {
                        if (before_measuring) {
                            before_measuring();
                        }
                        return make_piece(used, model_, options_, part, placement);
                    },
                    std::nullopt};
    NetworkSpeeds speeds;
    try {
        speeds.network = speeds_up_to(subject, Timed::network, size);
        if (has_attention_piece(part)) {
            speeds.attention = speeds_up_to(subject, Timed::attention, size);
        }
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::out_of_memory) {
            throw;
        }
        log(LogLevel::debug,
            concat("the speed of the ", to_string(part), " could not be measured: ", error.what()));
    }
    return speeds;
}

}  // namespace flux2
