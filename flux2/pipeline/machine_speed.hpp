// How fast this machine computes the networks of a model: pieces of them are timed at a few sizes,
// and the results kept in the cache.
#pragma once

#include <flux2/flux2.hpp>
#include "compute/backend.hpp"
#include "compute/graph_work.hpp"
#include "networks/part.hpp"
#include "pipeline/loaded_model.hpp"
#include "pipeline/model.hpp"
#include "pipeline/network_piece.hpp"
#include "pipeline/tensor_cache.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

// What was measured at one size: tokens, or pixels of autoencoders.
struct Speed {
    int64_t size = 0;
    WorkAmounts seconds_per = {};  // flop or byte; 0 for kinds of work that did not occur
    double seconds = 0;            // of the whole computation
};
using Speeds = std::vector<Speed>;  // by rising size

struct NetworkSpeeds {
    Speeds network;
    // Attention alone, which can be timed with more tokens than a network can; may be empty.
    Speeds attention;
};

class MachineSpeed {
  public:
    // Borrows all. Starts the devices.
    MachineSpeed(const Model& model, const LoadOptions& options, const TensorCache& cache);

    // What is known about a part at sizes up to this one. Only what is neither in memory nor in
    // the cache is measured; `before_measuring` is called before anything is allocated for that.
    // Larger sizes are left out where they would take long. Empty where memory does not suffice.
    // `device` is one of several that the transformer has; empty: the part's.
    NetworkSpeeds of(Part part, Placement placement, const std::string& device, int64_t size,
                     const std::function<void()>& before_measuring = {});

    // Cancels measuring once *flag is true, as Backend::set_cancel says. Null: never.
    void set_cancel(const std::atomic<bool>* flag) { backends_.set_cancel(flag); }

    // How many computations have been timed so far.
    size_t n_measured() const { return n_measured_; }

  private:
    enum class Timed { network, attention };
    // A part of the model, and pieces of it once something has to be timed.
    struct Subject {
        Part part;
        Backend& backend;
        std::string key;
        std::function<NetworkPiece()> make_piece;
        std::optional<NetworkPiece> piece;
    };

    Backend& backend(Part part, Placement placement, const std::string& device);
    std::string key_of(Part part, Placement placement, const Backend& used) const;
    std::optional<Speed> find(const std::string& key, int64_t size) const;
    Speed speed_at(Subject& subject, Timed timed, int64_t size);
    Speeds speeds_up_to(Subject& subject, Timed timed, int64_t size);
    Speed measure(Backend& backend, int64_t size, const NetworkPiece::Run& run);

    const Model& model_;
    const LoadOptions& options_;
    const TensorCache& cache_;
    PartBackends backends_;
    std::map<std::string, Speed> known_;
    size_t n_measured_ = 0;
};

}  // namespace flux2
