#include "pipeline/memory_plan.hpp"

#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "formats/tensor_type.hpp"

#include <algorithm>
#include <utility>

namespace flux2 {
namespace {

constexpr size_t kMaxKnown = 256;
constexpr int64_t kPixelBytes = 3 * (sizeof(float) + 1);  // as planes and as bytes

// A token in the tokenizer's tables: 186 bytes were measured with Qwen3's vocabulary.
constexpr uint64_t kTokenizerEntryBytes = 190;

MemoryUse larger(const MemoryUse& a, const MemoryUse& b) {
    return {std::max(a.device, b.device), std::max(a.host, b.host)};
}

// The images that are encoded before denoising.
std::vector<ImageSize> images_of(const Job& job) {
    std::vector<ImageSize> images = job.references;
    if (job.has_init) {
        images.push_back({job.width, job.height});
    }
    return images;
}

uint64_t feature_bytes(const Job& job, const Model& model) {
    const auto values = static_cast<uint64_t>(model.sizes.text_width * job.text_length);
    return values * sizeof(float) * (job.two_passes ? 2 : 1);
}

// How often a job computes each of the transformer's graphs: one, or of KV models the one that
// keeps references, for one picture and one text, and the one that reads them.
std::vector<double> passes_of(const Job& job, size_t n_graphs) {
    double passes = job.n_passes();
    double n_sequences = job.n_pictures;
    if (job.guides_in_one_pass()) {
        const auto n_guided = static_cast<double>(job.guided_steps.size());
        passes = n_guided + (job.steps - n_guided) / 2;
        n_sequences *= 2;
    }
    return n_graphs == 1 ? std::vector{passes} : std::vector{1.0, passes - 1 / n_sequences};
}

// How often a job computes each of the graphs of a stage's main part.
std::vector<double> times_of(const Job& job, Stage stage, size_t n_graphs) {
    switch (stage) {
        case Stage::encode_prompt:
            return {job.two_passes ? 2.0 : 1.0};
        case Stage::denoise:
            return passes_of(job, n_graphs);
        case Stage::decode:
            return {static_cast<double>(job.n_pictures)};
        default:
            return std::vector<double>(n_graphs, 1);
    }
}

// "double 0-4, single 0-9"
std::string name_blocks(const BlockRange& range, size_t n_double) {
    std::string text;
    const auto add = [&](const char* kind, size_t first, size_t end) {
        if (first < end) {
            text += concat(text.empty() ? "" : ", ", kind, " ", first);
            text += end - first > 1 ? concat("-", end - 1) : "";
        }
    };
    add("double", range.first, std::min(range.end, n_double));
    add("single", std::max(range.first, n_double) - n_double,
        std::max(range.end, n_double) - n_double);
    return text;
}

}  // namespace

MemoryPlanner::MemoryPlanner(const Model& model, const LoadOptions& options, uint64_t program_bytes)
    : model_(model),
      options_(options),
      program_bytes_(program_bytes),
      backends_(options, BackendUse::measure) {}

Backend& MemoryPlanner::backend(Part part, Placement placement) {
    return placement == Placement::cpu ? backends_.cpu() : backends_.of(part);
}

std::vector<DevicePeak> MemoryPlanner::on_device(Part part, Placement placement,
                                                 const WeightMemory& weights,
                                                 const MemoryUse& graph) {
    std::vector<DevicePeak> devices;
    add_bytes(devices, backend(part, placement).name(), weights.own.device + graph.device);
    return devices;
}

std::string MemoryPlanner::name_of(Part part, Placement placement) {
    const Backend& used = backend(part, placement);
    return (placement == Placement::streamed && !used.is_cpu() ? "streamed to " : "") + used.name();
}

uint64_t MemoryPlanner::device_bytes(const Work& work) {
    return work.weights.own.device + work.graph.device;
}

uint64_t MemoryPlanner::beyond_graph(const Work& work) {
    return work.weights.loading - std::min(work.weights.loading, work.graph.host);
}

uint64_t MemoryPlanner::host_bytes(const Work& work) {
    return work.weights.own.host + work.graph.host + beyond_graph(work) + work.passing;
}

// Memory depends only on shapes, so each set of shapes is measured once.
template <typename Measure>
MemoryPlanner::Work MemoryPlanner::known(Key key, const Measure& measure) {
    const auto found = works_.find(key);
    if (found != works_.end()) {
        return found->second;
    }
    if (works_.size() >= kMaxKnown) {
        works_.clear();
    }
    ++n_measured_;
    return works_.emplace(std::move(key), measure()).first->second;
}

MemoryPlanner::Work MemoryPlanner::text_encoder(const Job& job, Placement placement) {
    return known({Stage::encode_prompt,
                  Part::text_encoder,
                  placement,
                  {job.text_length},
                  identity_of(job.adapters.text_encoder)},
                 [&] { return measure_text_encoder(job, placement); });
}

MemoryPlanner::Work MemoryPlanner::transformer(const Job& job, Placement placement) {
    return known({Stage::denoise,
                  Part::transformer,
                  placement,
                  {job.latent_w() * job.latent_h(), job.n_reference_tokens(), job.text_length,
                   job.n_pictures, job.guides_in_one_pass() ? 2 : 1},
                  identity_of(job.adapters.transformer)},
                 [&] { return measure_transformer(job, placement); });
}

MemoryPlanner::Work MemoryPlanner::encode(const Job& job, Part part, Placement placement,
                                          MapMemory maps) {
    std::vector<int64_t> sides = {static_cast<int64_t>(maps)};
    for (const ImageSize& image : images_of(job)) {
        sides.insert(sides.end(), {image.width, image.height});
    }
    return known({Stage::encode_references, part, placement, std::move(sides), ""},
                 [&] { return measure_encode(job, part, placement, maps); });
}

MemoryPlanner::Work MemoryPlanner::decode(const Job& job, Part part, Placement placement,
                                          MapMemory maps) {
    return known(
        {Stage::decode, part, placement, {static_cast<int64_t>(maps), job.width, job.height}, ""},
        [&] { return measure_decode(job, part, placement, maps); });
}

MemoryPlanner::Work MemoryPlanner::measure_text_encoder(const Job& job, Placement placement) {
    TextEncoder encoder(
        backend(Part::text_encoder, placement), read_text_encoder_sizes(*model_.text_encoder),
        text_encoder_facts(model_.text), *model_.text_encoder,
        weight_options(options_, Part::text_encoder, placement, job.adapters.text_encoder));
    encoder.reserve(job.text_length);
    return {
        Part::text_encoder,
        on_device(Part::text_encoder, placement, encoder.weight_memory(), encoder.compute_memory()),
        encoder.weight_memory(),
        encoder.compute_memory(),
        static_cast<uint64_t>(encoder.sizes().vocabulary) * kTokenizerEntryBytes,
        {{job.text_length, {{"", amounts_of(encoder.graph()->nodes())}}}},
        {},
        {}};
}

MemoryPlanner::Work MemoryPlanner::measure_transformer(const Job& job, Placement placement) {
    const Backend& used = backend(Part::transformer, placement);
    const std::vector<BlockShare> shares =
        placement == Placement::cpu ? std::vector<BlockShare>{{&used, 1}} : backends_.of_blocks();
    Transformer transformer(
        shares, model_.sizes, model_.transformer,
        weight_options(options_, Part::transformer, placement, job.adapters.transformer));
    TransformerShape shape{.mode = ReferenceMode::joint,
                           .n_img = job.latent_w() * job.latent_h(),
                           .n_ref = job.n_reference_tokens(),
                           .n_txt = job.text_length,
                           .n_pictures = job.n_pictures,
                           .n_texts = job.guides_in_one_pass() ? 2 : 1};
    MemoryUse graph;
    std::vector<DevicePeak> devices;
    std::vector<GraphCost> costs;
    const bool kv = model_.variant == Variant::kv && shape.n_ref > 0;
    for (const ReferenceMode mode : kv ? std::vector{ReferenceMode::extract, ReferenceMode::cached}
                                       : std::vector{ReferenceMode::joint}) {
        shape.mode = mode;
        TransformerShape computed = shape;
        if (mode == ReferenceMode::extract) {
            computed.n_pictures = computed.n_texts = 1;
        }
        transformer.reserve(computed);
        graph = larger(graph, transformer.compute_memory());
        std::vector<DevicePeak> now;
        for (const BlockRange& range : transformer.block_ranges()) {
            add_bytes(now, range.backend->name(), range.weights.device + range.compute.device);
        }
        raise_to(devices, now);
        const int64_t n_ref = mode == ReferenceMode::cached ? 0 : shape.n_ref;
        GraphCost cost;
        cost.size = (shape.n_txt + shape.n_img + n_ref) * computed.n_pictures * computed.n_texts;
        for (size_t i = 0; i < shares.size(); ++i) {
            cost.work.push_back({shares.size() > 1 ? shares[i].backend->name() : "",
                                 amounts_of(transformer.graphs()[i]->nodes())});
        }
        costs.push_back(std::move(cost));
    }
    std::vector<BlockPlace> blocks;
    for (const BlockRange& range : transformer.block_ranges()) {
        blocks.push_back(
            {range.backend->name(), name_blocks(range, static_cast<size_t>(model_.sizes.n_double)),
             range.weights.device + range.weights.host, range.compute.device + range.compute.host});
    }
    std::vector<StepTraffic> traffic;
    for (const Crossing& crossing : transformer.crossings()) {
        const auto name = [](const Backend* backend) {
            return backend == nullptr ? "host" : backend->name();
        };
        traffic.push_back({name(crossing.from), name(crossing.to),
                           crossing.activations + crossing.others, crossing.activations});
    }
    const auto token_bytes = static_cast<uint64_t>(model_.sizes.channels) * sizeof(float);
    // Latents, velocities and temporary copies.
    const uint64_t passing =
        token_bytes * static_cast<uint64_t>(shape.n_pictures * (5 * shape.n_img + 3 * shape.n_ref));
    return {Part::transformer, devices,          transformer.weight_memory(), graph,
            passing,           std::move(costs), std::move(blocks),           std::move(traffic)};
}

std::unique_ptr<Autoencoder> MemoryPlanner::autoencoder(Part part, Placement placement) {
    return make_autoencoder(backend(part, placement), model_, part,
                            weight_options(options_, part, placement));
}

MemoryPlanner::Work MemoryPlanner::measure_encode(const Job& job, Part part, Placement placement,
                                                  MapMemory maps) {
    const auto network = autoencoder(part, placement);
    network->set_map_memory(maps);
    MemoryUse graph;
    std::vector<GraphCost> costs;
    int64_t pixels = 0;
    for (const ImageSize& image : images_of(job)) {
        network->reserve_encode(image.width, image.height);
        graph = larger(graph, network->compute_memory());
        costs.push_back(
            {int64_t{image.width} * image.height, {{"", amounts_of(network->graph()->nodes())}}});
        pixels = std::max(pixels, costs.back().size);
    }
    return {part,
            on_device(part, placement, network->weight_memory(), graph),
            network->weight_memory(),
            graph,
            static_cast<uint64_t>(pixels * kPixelBytes),
            std::move(costs),
            {},
            {}};
}

MemoryPlanner::Work MemoryPlanner::measure_decode(const Job& job, Part part, Placement placement,
                                                  MapMemory maps) {
    const auto network = autoencoder(part, placement);
    network->set_map_memory(maps);
    network->reserve_decode(job.width, job.height);
    const int64_t pixels = int64_t{job.width} * job.height;
    return {part,
            on_device(part, placement, network->weight_memory(), network->compute_memory()),
            network->weight_memory(),
            network->compute_memory(),
            static_cast<uint64_t>(pixels * kPixelBytes),
            {{pixels, {{"", amounts_of(network->graph()->nodes())}}}},
            {},
            {}};
}

bool MemoryPlanner::computes_in_bands(Part part, Placement placement) {
    const auto [found, is_new] = computes_in_bands_.try_emplace({part, placement});
    if (is_new) {
        found->second = autoencoder(part, placement)->can_use(MapMemory::bands);
    }
    return found->second;
}

// Smallest peak on the device; 0 for a part that the job does not need.
uint64_t MemoryPlanner::autoencoder_bytes(const Job& job, Part part, Placement placement) {
    const bool encodes = encoding_part(model_) == part && !images_of(job).empty();
    const bool decodes =
        decoding_part(model_) == part || (part == Part::tiny_autoencoder && previews(job));
    if (!encodes && !decodes) {
        return 0;
    }
    const MapMemory maps =
        computes_in_bands(part, placement) ? kAllMapMemory.back() : MapMemory::whole;
    const uint64_t encoding = encodes ? device_bytes(encode(job, part, placement, maps)) : 0;
    const uint64_t decoding = decodes ? device_bytes(decode(job, part, placement, maps)) : 0;
    return std::max(encoding, decoding);
}

// The first from `least` on with which the work stays within the limits, else the smallest.
template <typename WorkWith>
MapMemory MemoryPlanner::fastest_maps(Part part, Placement placement, MapMemory least,
                                      const MemoryLimits& limits, const WorkWith& work_with) {
    MapMemory chosen = MapMemory::whole;
    for (const MapMemory maps : kAllMapMemory) {
        if (maps < least) {
            continue;
        }
        if (maps != MapMemory::whole && !computes_in_bands(part, placement)) {
            break;
        }
        chosen = maps;
        const Work work = work_with(maps);
        if (within(work.devices, limits) && host_bytes(work) <= limits.free_host) {
            break;
        }
    }
    return chosen;
}

MapMemories MemoryPlanner::choose_maps(const Job& job, const Placements& placement, MapMemory least,
                                       const MemoryLimits& limits) {
    const auto of = [&](Part part) { return placement[static_cast<size_t>(part)]; };
    const auto decoded_by = [&](Part part) {
        return fastest_maps(part, of(part), least, limits,
                            [&](MapMemory maps) { return decode(job, part, of(part), maps); });
    };
    const Part encoder = encoding_part(model_);
    MapMemories maps;
    if (!images_of(job).empty()) {
        maps.encode = fastest_maps(encoder, of(encoder), least, limits, [&](MapMemory m) {
            return encode(job, encoder, of(encoder), m);
        });
    }
    maps.decode = decoded_by(decoding_part(model_));
    if (previews(job)) {
        maps.preview = decoded_by(Part::tiny_autoencoder);
    }
    return maps;
}

std::vector<MemoryPlanner::PlannedStage> MemoryPlanner::stages_of(const Job& job,
                                                                  const MemoryChoice& choice) {
    const auto of = [&](Part part) { return choice.placement[static_cast<size_t>(part)]; };
    const Part encoder = encoding_part(model_);
    const Part decoder = decoding_part(model_);
    std::vector<PlannedStage> stages;
    if (model_.text_encoder && !job.features) {
        stages.push_back({Stage::encode_prompt,
                          "text encoder",
                          false,
                          {text_encoder(job, of(Part::text_encoder))}});
    }
    if (!images_of(job).empty()) {
        stages.push_back({Stage::encode_references,
                          "encode references",
                          choice.maps.encode != MapMemory::whole,
                          {encode(job, encoder, of(encoder), choice.maps.encode)}});
    }
    stages.push_back(
        {Stage::denoise, "transformer", false, {transformer(job, of(Part::transformer))}});
    if (previews(job)) {
        stages.back().works.push_back(
            decode(job, Part::tiny_autoencoder, of(Part::tiny_autoencoder), choice.maps.preview));
    }
    stages.push_back({Stage::decode,
                      "decode",
                      choice.maps.decode != MapMemory::whole,
                      {decode(job, decoder, of(decoder), choice.maps.decode)}});
    return stages;
}

// Memory that is in use during every stage.
uint64_t MemoryPlanner::common_bytes(const Job& job) const {
    return program_bytes_ + feature_bytes(job, model_);
}

MemoryPlan MemoryPlanner::plan(const Job& job, const MemoryChoice& choice) {
    const std::vector<PlannedStage> stages = stages_of(job, choice);
    MemoryPlan plan = choice.keep_loaded ? peaks_together(stages) : peaks_in_turn(stages);
    plan.host_peak += common_bytes(job);
    for (const PlannedStage& stage : stages) {
        StageMemory memory;
        memory.stage = stage.name;
        const Part part = stage.works.front().part;
        memory.placement = name_of(part, choice.placement[static_cast<size_t>(part)]) +
                           (stage.in_bands ? ", in bands" : "");
        memory.host_compute = common_bytes(job);
        if (part == Part::transformer) {
            plan.blocks = stage.works.front().blocks;
            plan.traffic = stage.works.front().traffic;
            for (size_t i = 1; i < plan.blocks.size(); ++i) {
                memory.placement += "+" + plan.blocks[i].device;
            }
        }
        for (const Work& work : stage.works) {
            memory.device_weights += work.weights.own.device;
            memory.host_weights += work.weights.own.host;
            memory.mapped += work.weights.mapped;
            memory.device_compute += work.graph.device;
            memory.host_compute += work.graph.host + beyond_graph(work) + work.passing;
        }
        plan.stages.push_back(std::move(memory));
    }
    return plan;
}

StageComputations MemoryPlanner::computations(const Job& job, const MemoryChoice& choice) {
    StageComputations result;
    for (const PlannedStage& stage : stages_of(job, choice)) {
        std::vector<Computation>& computations = result.emplace_back();
        for (const Work& work : stage.works) {
            // Others than the main part make the previews.
            const bool main = work.part == stage.works.front().part;
            const std::vector<double> times =
                main ? times_of(job, stage.stage, work.graphs.size())
                     : std::vector<double>(work.graphs.size(), job.steps * job.n_pictures);
            for (size_t i = 0; i < work.graphs.size(); ++i) {
                for (const DeviceWork& on_device : work.graphs[i].work) {
                    computations.push_back(
                        {work.part, choice.placement[static_cast<size_t>(work.part)],
                         on_device.device, work.graphs[i].size, on_device.work, times[i]});
                }
            }
        }
    }
    return result;
}

MemoryPlan MemoryPlanner::peaks_in_turn(const std::vector<PlannedStage>& stages) const {
    MemoryPlan plan;
    for (const PlannedStage& stage : stages) {
        MemoryPlan sum;
        for (const Work& work : stage.works) {
            for (const DevicePeak& peak : work.devices) {
                add_bytes(sum.devices, peak.device, peak.bytes);
            }
            sum.host_peak += host_bytes(work);
            sum.mapped_peak += work.weights.mapped;
        }
        raise_to(plan.devices, sum.devices);
        plan.host_peak = std::max(plan.host_peak, sum.host_peak);
        plan.mapped_peak = std::max(plan.mapped_peak, sum.mapped_peak);
    }
    plan.device_peak = largest(plan.devices);
    return plan;
}

// A part that is used in several stages counts once, with one graph at a time.
MemoryPlan MemoryPlanner::peaks_together(const std::vector<PlannedStage>& stages) const {
    std::array<WeightMemory, kAllParts.size()> weights = {};
    std::array<MemoryUse, kAllParts.size()> graphs = {};
    std::array<std::vector<DevicePeak>, kAllParts.size()> devices;
    MemoryPlan plan;
    uint64_t loading = 0;
    for (const PlannedStage& stage : stages) {
        uint64_t passing = 0;
        for (const Work& work : stage.works) {
            loading = std::max(loading, beyond_graph(work));
            const auto part = static_cast<size_t>(work.part);
            weights[part] = work.weights;
            raise_to(devices[part], work.devices);
            graphs[part] = larger(graphs[part], work.graph);
            passing += work.passing;
        }
        plan.host_peak = std::max(plan.host_peak, passing);
    }
    plan.host_peak += loading;
    for (size_t part = 0; part < kAllParts.size(); ++part) {
        for (const DevicePeak& peak : devices[part]) {
            add_bytes(plan.devices, peak.device, peak.bytes);
        }
        plan.host_peak += weights[part].own.host + graphs[part].host;
        plan.mapped_peak += weights[part].mapped;
    }
    plan.device_peak = largest(plan.devices);
    return plan;
}

// Whether the device multiplies unpacked matrices faster and the options allow it.
bool MemoryPlanner::may_unpack(Part part) {
    return facts_of(part).has_blocks && backends_.of(part).device().abilities().unpacks_matrices &&
           options_.unpack && chosen_type(options_, part).empty();
}

Placements MemoryPlanner::place(const Job& job, const MemoryLimits& limits, bool keep_loaded) {
    Placements chosen;
    chosen.fill(Placement::device);
    const auto choose_for = [&](Part part, const auto& bytes_at) {
        const Backend& device = backends_.of(part);
        if (part == Part::transformer && backends_.splits_transformer()) {
            // Its shares are what the user wants, or follow the free memory.
            chosen[static_cast<size_t>(part)] =
                within(transformer(job, Placement::device).devices, limits) ? Placement::device
                                                                            : Placement::cpu;
            return;
        }
        if (device.is_cpu()) {
            return;
        }
        const uint64_t device_limit = limits.of(device.name());
        // Unpacked weights of all parts that stay loaded must fit together with everything else.
        const uint64_t unpacked_limit = keep_loaded ? device_limit / 2 : device_limit;
        Placement& placement = chosen[static_cast<size_t>(part)];
        if (may_unpack(part) && bytes_at(Placement::unpacked) <= unpacked_limit) {
            placement = Placement::unpacked;
            return;
        }
        if (bytes_at(Placement::device) <= device_limit) {
            return;
        }
        placement = facts_of(part).has_blocks && device.device().abilities().streams_blocks &&
                            bytes_at(Placement::streamed) <= device_limit
                        ? Placement::streamed
                        : Placement::cpu;
    };
    if (model_.text_encoder && !job.features) {
        choose_for(Part::text_encoder,
                   [&](Placement p) { return device_bytes(text_encoder(job, p)); });
    }
    for (const Part part : {Part::vae, Part::tiny_autoencoder}) {
        choose_for(part, [&](Placement p) { return autoencoder_bytes(job, part, p); });
    }
    const bool previews_there =
        previews(job) && &backends_.of(Part::tiny_autoencoder) == &backends_.of(Part::transformer);
    const uint64_t beside =
        previews_there ? autoencoder_bytes(job, Part::tiny_autoencoder,
                                           chosen[static_cast<size_t>(Part::tiny_autoencoder)])
                       : 0;
    choose_for(Part::transformer,
               [&](Placement p) { return device_bytes(transformer(job, p)) + beside; });
    return chosen;
}

MemoryChoice MemoryPlanner::choose(const Job& job, const MemoryLimits& limits) {
    const auto choice_when = [&](bool keep_loaded, MapMemory least) {
        MemoryChoice choice;
        choice.placement = place(job, limits, keep_loaded);
        choice.maps = choose_maps(job, choice.placement, least, limits);
        choice.keep_loaded = keep_loaded;
        choice.plan = plan(job, choice);
        return choice;
    };
    if (!options_.keep_loaded) {
        return choice_when(false, MapMemory::whole);
    }
    MemoryChoice together;
    for (const MapMemory least : kAllMapMemory) {
        together = choice_when(true, least);
        if (fits(together.plan, limits)) {
            return together;
        }
    }
    const DevicePeak* full = device_over(together.plan, limits);
    MemoryChoice in_turn = choice_when(false, MapMemory::whole);
    in_turn.why_in_turn = concat("all parts together take ",
                                 gigabytes(full != nullptr ? full->bytes : together.plan.host_peak),
                                 full != nullptr ? concat(" on ", full->device, ", which has ")
                                                 : " of RAM, of which there are ",
                                 gigabytes(full != nullptr ? limits.of(full->device) : limits.host),
                                 ": they are loaded one at a time");
    return in_turn;
}

}  // namespace flux2
