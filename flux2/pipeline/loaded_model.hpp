// The networks of a model in memory: loaded when they are needed, one at a time unless all are to
// be kept, and placed where there is room. The tiny autoencoder is small: it is loaded in addition
// to the others and kept until all are freed.
#pragma once

#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "base/log.hpp"
#include "compute/backend.hpp"
#include "models/autoencoder.hpp"
#include "models/text_encoder.hpp"
#include "models/transformer.hpp"
#include "networks/part.hpp"
#include "pipeline/model.hpp"
#include "pipeline/part_backends.hpp"
#include "pipeline/request_adapters.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

// From the fastest to the one that needs the least device memory.
enum class Placement {
    unpacked,  // weights on the device, quantised ones unpacked to its fastest type
    device,    // weights on the device
    streamed,  // weights in RAM, one block after another copied to the device
    cpu,       // everything in RAM
};

// One for each part, indexed by its number.
using Placements = std::array<Placement, kAllParts.size()>;

// How the maps of the autoencoders are computed for a job.
struct MapMemories {
    MapMemory encode = MapMemory::whole;
    MapMemory decode = MapMemory::whole;
    MapMemory preview = MapMemory::whole;

    bool operator==(const MapMemories&) const = default;
};

// How a part's weights are to be held for a placement; `adapters` may be null.
WeightOptions weight_options(const LoadOptions& options, Part part, Placement placement,
                             std::shared_ptr<const AdapterSet> adapters = nullptr);
TextEncoderFacts text_encoder_facts(const TextConfig& text);
// `part` is vae or tiny_autoencoder, and the model has it. Borrows backend and model.
std::unique_ptr<Autoencoder> make_autoencoder(const Backend& backend, const Model& model, Part part,
                                              const WeightOptions& options);

// The network that encodes pictures: the autoencoder, if there is one.
Part encoding_part(const Model& model);
// The network that decodes the picture.
Part decoding_part(const Model& model);

class LoadedModel {
  public:
    // Borrows both. Starts the devices. Throws bad_argument for an unknown one.
    LoadedModel(const Model& model, const LoadOptions& options);

    // The transformer's device.
    const std::string& device() const { return *device_.load(); }
    // What was chosen for a part; it may have no room there.
    Backend& device(Part part) { return backends_->of(part); }
    std::vector<Backend*> devices() { return backends_->all(); }
    // Frees everything and starts the devices that the options name now. When one fails to start,
    // none is started and restart() must be called again before anything else.
    void restart();
    bool is_started() const { return backends_.has_value(); }
    Placement placement(Part part) const { return placement_[index(part)]; }
    // A change frees the part; it takes effect when the part is loaded again.
    void set_placement(Part part, Placement placement);
    // Whether a part stays when another one is loaded; at first as the options say.
    bool keeps_loaded() const { return keeps_loaded_; }
    void set_keeps_loaded(bool keeps) { keeps_loaded_ = keeps; }
    const MapMemories& map_memories() const { return map_memories_; }
    void set_map_memories(const MapMemories& memories) { map_memories_ = memories; }
    // What changes the networks from now on. Of those that are loaded other adapters are taken off,
    // or they are freed where that takes loading them again; the new ones are put on, and count as
    // put on once that is done, where a network is asked for.
    void set_adapters(const AdapterSets& adapters);
    // Where the part computes.
    Backend& backend(Part part);

    // Each loads its part if it is not there. Throws out_of_memory, or cancelled.
    TextEncoder& text_encoder();
    Transformer& transformer();
    Autoencoder& vae() { return autoencoder(Part::vae); }
    Autoencoder& tiny() { return autoencoder(Part::tiny_autoencoder); }
    // Use encoding_part and decoding_part, and free the other networks first unless all are kept.
    HostTensor encode(const HostTensor& pixels);
    HostTensor decode(const HostTensor& latents);
    // By the tiny one, beside the others.
    HostTensor decode_preview(const HostTensor& latents);

    // What a part's values depend on beside its files, to the last bit: device, operations, type
    // and placement of weights. Lines of text, for keys of caches.
    std::string compute_facts(Part part);
    // The memory layout of the text encoder's weights, or what it would be if it were loaded now;
    // depends on the CPU's kernels and on the free RAM.
    std::string text_encoder_layout();

    // What the loaded parts have allocated.
    MemoryUse memory() const;
    // Of that, what lies on one of the devices.
    uint64_t device_bytes(const Backend& device);
    void free(Part part);
    void free_all();

    // Runs `work` with the part. When memory does not suffice, retries with the other parts freed,
    // then with maps in bands and smaller and smaller placements, and logs each retry. `work` may
    // run several times.
    template <typename Work>
    auto run(Part part, const Work& work) {
        for (;;) {
            try {
                return work();
            } catch (const Error& error) {
                if (error.kind() != ErrorKind::out_of_memory || !make_room(part, error.what())) {
                    throw;
                }
            }
        }
    }

    // Cancels loading and computing once *flag is true, as Backend::set_cancel says. Null: never.
    void set_cancel(const std::atomic<bool>* flag) { backends_->set_cancel(flag); }
    // Called with each part that starts loading.
    void set_on_load(std::function<void(Part)> on_load) { on_load_ = std::move(on_load); }
    double load_seconds() const { return load_seconds_; }

  private:
    static size_t index(Part part) { return static_cast<size_t>(part); }
    Autoencoder& autoencoder(Part part);
    void free_others(Part part);
    template <typename Make>
    void load(Part part, const Make& make);
    template <typename Network>
    void put_on(Part part, Network* network, const std::shared_ptr<const AdapterSet>& adapters);
    template <typename Network>
    void take_off_others(Part part, Network* network,
                         const std::shared_ptr<const AdapterSet>& adapters);
    std::string take_smaller_placement(Part part);
    bool take_smaller_maps(Part part);
    bool make_room(Part part, const std::string& reason);
    bool is_loaded(Part part) const;

    const Model& model_;
    const LoadOptions& options_;
    bool keeps_loaded_;
    std::optional<PartBackends> backends_;
    // Names of the transformer's device; the last is in use. References to others may be held.
    std::list<std::string> device_names_;
    std::atomic<const std::string*> device_;
    Placements placement_ = {Placement::device, Placement::device, Placement::device,
                             Placement::device};
    MapMemories map_memories_;
    AdapterSets adapters_;
    std::unique_ptr<TextEncoder> text_encoder_;
    std::unique_ptr<Transformer> transformer_;
    std::unique_ptr<Autoencoder> vae_, tiny_;
    std::function<void(Part)> on_load_;
    double load_seconds_ = 0;
};

}  // namespace flux2
