#include "models/autoencoder.hpp"

#include "base/check.hpp"

#include <utility>

namespace flux2 {

struct Autoencoder::BuiltGraph {
    BuiltGraph(const Backend& backend, size_t max_nodes, const Form& form)
        : graph(backend, max_nodes, form) {}

    Graph graph;
    bool decoding = false;
    std::array<int64_t, 4> input_ne = {};
    ggml_tensor *input = nullptr, *output = nullptr;
};

Autoencoder::Autoencoder(const Backend& backend, const Checkpoint& checkpoint,
                         const std::vector<ExpectedTensor>& tensors, const WeightOptions& options,
                         const Traits& traits)
    : backend_(backend),
      traits_(traits),
      wants_f32_(options.type == TensorType::f32),
      weights_(backend, checkpoint, tensors, options) {}

Autoencoder::~Autoencoder() = default;

void Autoencoder::load(bool suits_cuda) {
    // Whoever asks for F32 does not want pixels in F16.
    form_ = choose_feature_map_form(backend_, suits_cuda && !wants_f32_);
    weights_.load();
}

bool Autoencoder::can_use(MapMemory memory) const {
    return memory == MapMemory::whole || form_.operations != Operations::stock;
}

void Autoencoder::set_map_memory(MapMemory memory, int64_t band_values) {
    if (!can_use(memory)) {
        memory = MapMemory::whole;
    }
    const bool in_bands = memory != MapMemory::whole;
    const int64_t values = in_bands ? band_values : 0;
    if (map_memory_ == memory && form_.band_values == values) {
        return;
    }
    built_.reset();
    map_memory_ = memory;
    form_.band_values = values;
    form_.half_bands = in_bands && halves_bands() && form_.operations == Operations::cuda;
}

Autoencoder::BuiltGraph& Autoencoder::graph_for(bool decoding, const std::array<int64_t, 4>& ne) {
    if (built_ && built_->decoding == decoding && built_->input_ne == ne) {
        return *built_;
    }
    built_.reset();                                    // gives its memory back first
    const int64_t pixels_of_input = decoding ? 8 : 1;  // along each side
    Form form = form_;
    form.half_bands = form.half_bands && decoding;
    auto built = std::make_unique<BuiltGraph>(
        backend_, max_nodes(ne[0] * pixels_of_input, ne[1] * pixels_of_input), form);
    built->decoding = decoding;
    built->input_ne = ne;
    Graph& g = built->graph;
    built->input = g.input_f32("input", {ne[0], ne[1], ne[2]});
    built->output = decoding ? decode_graph(g, built->input) : encode_graph(g, built->input);
    g.finish(built->output);
    built_ = std::move(built);
    return *built_;
}

HostTensor Autoencoder::compute(bool decoding, const HostTensor& input) {
    BuiltGraph& built = graph_for(decoding, input.ne);
    built.graph.set(built.input, input.data);
    built.graph.compute();
    return built.graph.read(built.output);
}

HostTensor Autoencoder::encode(const HostTensor& pixels) {
    check(has_encoder(), ErrorKind::bad_file, weights_.file(),
          ": holds the decoder alone and cannot encode pictures; use a file with both halves, or "
          "add the autoencoder with ",
          Setting::vae, " FILE");
    check(pixels.ne[0] % 16 == 0 && pixels.ne[1] % 16 == 0 && pixels.ne[2] == 3,
          ErrorKind::bad_argument, "a picture of ", pixels.ne[0], "x", pixels.ne[1],
          " cannot be encoded; its sides must be multiples of 16");
    HostTensor latents = patchify(compute(/*decoding=*/false, pixels));
    normalise(latents);
    return latents;
}

HostTensor Autoencoder::decode(const HostTensor& latents) {
    check(latents.ne[2] == 4 * latent_channels(), ErrorKind::bad_argument, "latents have ",
          latents.ne[2], " channels, the ", to_string(traits_.part), " takes ",
          4 * latent_channels());
    HostTensor raw = latents;
    denormalise(raw);
    return compute(/*decoding=*/true, unpatchify(raw));
}

Graph* Autoencoder::graph() const {
    return built_ ? &built_->graph : nullptr;
}

MemoryUse Autoencoder::compute_memory() const {
    return built_ ? built_->graph.memory() : MemoryUse{};
}

void Autoencoder::reserve_encode(int64_t w, int64_t h) {
    graph_for(/*decoding=*/false, {w, h, 3, 1});
}

void Autoencoder::reserve_decode(int64_t w, int64_t h) {
    graph_for(/*decoding=*/true, {w / 8, h / 8, latent_channels(), 1});
}

void Autoencoder::release_buffers() {
    built_.reset();
}

Conv load_conv(Weights& w, const std::string& name) {
    return {.weight = w.filter(name + ".weight"), .bias = w.vector(name + ".bias")};
}

namespace {

// Calls f(index in the unpacked tensor, index in the packed one) for every value.
template <typename F>
void for_patches(int64_t w, int64_t h, int64_t channels, const F& f) {
    for (int64_t k = 0; k < 4 * channels; ++k) {
        const int64_t c = k / 4;
        const int64_t p = k / 2 % 2;
        const int64_t q = k % 2;
        for (int64_t y = 0; y < h; ++y) {
            for (int64_t x = 0; x < w; ++x) {
                f(static_cast<size_t>((c * 2 * h + 2 * y + p) * 2 * w + 2 * x + q),
                  static_cast<size_t>((k * h + y) * w + x));
            }
        }
    }
}

}  // namespace

HostTensor patchify(const HostTensor& x) {
    HostTensor packed({x.ne[0] / 2, x.ne[1] / 2, 4 * x.ne[2], 1});
    for_patches(packed.ne[0], packed.ne[1], x.ne[2],
                [&](size_t from, size_t to) { packed.data[to] = x.data[from]; });
    return packed;
}

HostTensor unpatchify(const HostTensor& x) {
    HostTensor plain({2 * x.ne[0], 2 * x.ne[1], x.ne[2] / 4, 1});
    for_patches(x.ne[0], x.ne[1], plain.ne[2],
                [&](size_t to, size_t from) { plain.data[to] = x.data[from]; });
    return plain;
}

}  // namespace flux2
