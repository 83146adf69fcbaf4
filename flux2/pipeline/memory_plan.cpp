#include "pipeline/memory_plan.hpp"

#include "base/check.hpp"
#include "store/tensor_type.hpp"

#include <algorithm>
#include <filesystem>

namespace flux2 {
namespace {

constexpr int64_t kPixelBytes = 3 * (sizeof(float) + 1);  // as planes and as bytes

// A token in the tokenizer's tables: 186 bytes were measured with Qwen3's vocabulary.
constexpr uint64_t kTokenizerEntryBytes = 190;

StageMemory stage(const char* name, const WeightMemory& weights, const MemoryUse& compute) {
    StageMemory memory;
    memory.stage = name;
    memory.device_weights = weights.own.device;
    memory.host_weights = weights.own.host;
    memory.mapped = weights.mapped;
    memory.device_compute = compute.device;
    memory.host_compute = compute.host;
    return memory;
}

MemoryUse larger(const MemoryUse& a, const MemoryUse& b) {
    return {std::max(a.device, b.device), std::max(a.host, b.host)};
}

uint64_t device_bytes(const StageMemory& stage) {
    return stage.device_weights + stage.device_compute;
}

uint64_t host_bytes(const StageMemory& stage) {
    return stage.host_weights + stage.host_compute;
}

// Takes in what is there at the same time.
void add_memory(StageMemory& stage, const StageMemory& other) {
    stage.device_weights += other.device_weights;
    stage.device_compute += other.device_compute;
    stage.host_weights += other.host_weights;
    stage.host_compute += other.host_compute;
    stage.mapped += other.mapped;
}

// What is encoded before the loop.
std::vector<const Image*> pictures_of(const Job& job) {
    std::vector<const Image*> pictures;
    for (const Image& reference : job.references) {
        pictures.push_back(&reference);
    }
    if (job.init) {
        pictures.push_back(&*job.init);
    }
    return pictures;
}

uint64_t feature_bytes(const Job& job, const Model& model) {
    const auto values = static_cast<uint64_t>(model.sizes.text_width * job.text_length);
    return values * sizeof(float) * (job.two_passes ? 2 : 1);
}

}  // namespace

MemoryPlanner::MemoryPlanner(const Model& model, const LoadOptions& options, uint64_t program_bytes)
    : model_(model),
      options_(options),
      program_bytes_(program_bytes),
      device_(options.device, options.threads, BackendUse::measure),
      cpu_("CPU", options.threads, BackendUse::measure) {}

Backend& MemoryPlanner::backend(Placement placement) {
    return placement == Placement::cpu ? cpu_ : device_;
}

std::string MemoryPlanner::name_of(Placement placement) {
    const std::string name = backend(placement).name();
    return placement == Placement::streamed && !device_.is_cpu() ? "streamed to " + name : name;
}

StageMemory MemoryPlanner::text_encoder(const Job& job, Placement placement) {
    TextEncoder encoder(backend(placement), *model_.text_encoder, text_encoder_facts(model_.text),
                        weight_options(options_, placement));
    encoder.reserve(job.text_length);
    StageMemory memory = stage("text encoder", encoder.weight_memory(), encoder.compute_memory());
    memory.host_compute += static_cast<uint64_t>(encoder.sizes().vocabulary) * kTokenizerEntryBytes;
    return memory;
}

StageMemory MemoryPlanner::transformer(const Job& job, Placement placement) {
    Transformer transformer(backend(placement), model_.transformer,
                            weight_options(options_, placement));
    TransformerShape shape{.mode = ReferenceMode::joint,
                           .n_img = job.latent_w() * job.latent_h(),
                           .n_ref = job.n_reference_tokens(),
                           .n_txt = job.text_length};
    MemoryUse compute;
    const bool kv = model_.variant == Variant::kv && shape.n_ref > 0;
    for (const ReferenceMode mode : kv ? std::vector{ReferenceMode::extract, ReferenceMode::cached}
                                       : std::vector{ReferenceMode::joint}) {
        shape.mode = mode;
        transformer.reserve(shape);
        compute = larger(compute, transformer.compute_memory());
    }
    StageMemory memory = stage("transformer", transformer.weight_memory(), compute);
    const auto token_bytes = static_cast<uint64_t>(model_.sizes.channels) * sizeof(float);
    // The features' copies for the loop; latents, their velocities and copies on their way.
    memory.host_compute += 2 * feature_bytes(job, model_) +
                           token_bytes * static_cast<uint64_t>(5 * shape.n_img + 3 * shape.n_ref);
    return memory;
}

// Lays out an autoencoder of either kind and lets `work` tell what it takes.
template <typename Work>
StageMemory MemoryPlanner::with_autoencoder(Part part, Placement placement, const Work& work) {
    const WeightOptions weights = weight_options(options_, placement);
    if (part == Part::tiny) {
        TinyAutoencoder tiny(backend(placement), *model_.tiny, weights);
        return work(tiny);
    }
    Vae vae(backend(placement), *model_.vae, weights);
    return work(vae);
}

StageMemory MemoryPlanner::encode(const Job& job, Part part, Placement placement) {
    return with_autoencoder(part, placement, [&](auto& network) {
        MemoryUse compute;
        int64_t pixels = 0;
        for (const Image* image : pictures_of(job)) {
            network.reserve_encode(image->width, image->height);
            compute = larger(compute, network.compute_memory());
            pixels = std::max(pixels, int64_t{image->width} * image->height);
        }
        StageMemory memory = stage("encode references", network.weight_memory(), compute);
        memory.host_compute += static_cast<uint64_t>(pixels * kPixelBytes);
        return memory;
    });
}

StageMemory MemoryPlanner::decode(const Job& job, Part part, Placement placement) {
    return with_autoencoder(part, placement, [&](auto& network) {
        network.reserve_decode(job.width, job.height);
        StageMemory memory = stage("decode", network.weight_memory(), network.compute_memory());
        memory.host_compute += static_cast<uint64_t>(int64_t{job.width} * job.height * kPixelBytes);
        return memory;
    });
}

// On the device, at most at a time; 0 for one that the job does not need.
uint64_t MemoryPlanner::autoencoder_bytes(const Job& job, Part part, Placement placement) {
    uint64_t peak = 0;
    if (encoding_part(model_) == part && !pictures_of(job).empty()) {
        peak = device_bytes(encode(job, part, placement));
    }
    if (decoding_part(model_) == part || (part == Part::tiny && previews(job))) {
        peak = std::max(peak, device_bytes(decode(job, part, placement)));
    }
    return peak;
}

MemoryPlan MemoryPlanner::plan(const Job& job, const std::array<Placement, kParts>& placement) {
    const auto of = [&](Part part) { return placement[static_cast<size_t>(part)]; };
    MemoryPlan plan;
    const auto add = [&](StageMemory memory, Part part) {
        memory.placement = name_of(of(part));
        memory.host_compute += program_bytes_ + feature_bytes(job, model_);
        plan.stages.push_back(std::move(memory));
    };
    if (model_.text_encoder && job.embeds_file.empty()) {
        add(text_encoder(job, of(Part::text_encoder)), Part::text_encoder);
    }
    const Part encoder = encoding_part(model_);
    const Part decoder = decoding_part(model_);
    if (!pictures_of(job).empty()) {
        add(encode(job, encoder, of(encoder)), encoder);
    }
    StageMemory loop = transformer(job, of(Part::transformer));
    if (previews(job)) {
        add_memory(loop, decode(job, Part::tiny, of(Part::tiny)));
    }
    add(std::move(loop), Part::transformer);
    add(decode(job, decoder, of(decoder)), decoder);

    for (const StageMemory& memory : plan.stages) {
        const auto combine = [&](uint64_t& peak, uint64_t bytes) {
            peak = options_.keep_loaded ? peak + bytes : std::max(peak, bytes);
        };
        combine(plan.device_peak, device_bytes(memory));
        combine(plan.host_peak, host_bytes(memory));
        combine(plan.mapped_peak, memory.mapped);
    }
    return plan;
}

// Whether the device multiplies matrices faster when they are unpacked, and nobody minds.
bool MemoryPlanner::may_unpack(Part part) const {
    return has_blocks(part) && device_.operations() == Operations::cuda && options_.unpack &&
           options_.type.empty();
}

uint64_t MemoryPlanner::device_limit() const {
    if (options_.max_device_bytes > 0) {
        return options_.max_device_bytes;
    }
    for (const DeviceInfo& device : list_devices()) {
        if (device.name == device_.name()) {
            return device.free_bytes;
        }
    }
    return 0;
}

std::array<Placement, kParts> MemoryPlanner::choose(const Job& job) {
    std::array<Placement, kParts> chosen;
    chosen.fill(Placement::device);
    if (device_.is_cpu()) {
        return chosen;
    }
    const uint64_t limit = device_limit();
    // Unpacked weights of all parts that stay loaded must fit together with everything else.
    const uint64_t unpacked_limit = options_.keep_loaded ? limit / 2 : limit;
    const auto choose_for = [&](Part part, const auto& bytes_at) {
        Placement& placement = chosen[static_cast<size_t>(part)];
        if (may_unpack(part) && bytes_at(Placement::unpacked) <= unpacked_limit) {
            placement = Placement::unpacked;
            return;
        }
        if (bytes_at(Placement::device) <= limit) {
            return;
        }
        placement = has_blocks(part) && bytes_at(Placement::streamed) <= limit ? Placement::streamed
                                                                               : Placement::cpu;
    };
    if (model_.text_encoder && job.embeds_file.empty()) {
        choose_for(Part::text_encoder,
                   [&](Placement p) { return device_bytes(text_encoder(job, p)); });
    }
    for (const Part part : {Part::vae, Part::tiny}) {
        choose_for(part, [&](Placement p) { return autoencoder_bytes(job, part, p); });
    }
    const uint64_t beside =
        previews(job)
            ? device_bytes(decode(job, Part::tiny, chosen[static_cast<size_t>(Part::tiny)]))
            : 0;
    choose_for(Part::transformer,
               [&](Placement p) { return device_bytes(transformer(job, p)) + beside; });
    return chosen;
}

}  // namespace flux2
