#include "models/transformer.hpp"

#include "base/check.hpp"
#include "compute/tensor_context.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace flux2 {
namespace {

// The tokens of each picture, then those of the references.
std::vector<float> with_references(const TransformerInput& input) {
    const std::vector<float>& img = input.img.data;
    const auto n = static_cast<std::ptrdiff_t>(input.img.ne[0] * input.img.ne[1]);
    std::vector<float> all;
    all.reserve(img.size() + static_cast<size_t>(input.img.ne[2]) * input.ref.data.size());
    for (auto picture = img.begin(); picture != img.end(); picture += n) {
        all.insert(all.end(), picture, picture + n);
        all.insert(all.end(), input.ref.data.begin(), input.ref.data.end());
    }
    return all;
}

// Sends values only where they differ from those that were sent last.
template <typename Values>
void send_new(Values& sent, const Values& values, const std::function<void()>& send) {
    if (sent != values) {
        send();
        sent = values;
    }
}

}  // namespace

struct Transformer::Section {
    Section(const Backend& used, size_t first_block, size_t end_block, const Checkpoint& checkpoint,
            const std::vector<ExpectedTensor>& tensors, const WeightOptions& options)
        : backend(used),
          first(first_block),
          end(end_block),
          weights(backend, checkpoint, tensors, options) {}

    const Backend& backend;
    size_t first, end;  // blocks
    Weights weights;
    Form form;
};

// Keys and values of reference tokens, per block, double blocks first.
struct Transformer::KvCache {
    int64_t n_ref = 0;
    TensorContext context;
    std::vector<CachedKv> blocks;
    std::vector<TensorBuffer> buffers;  // one per section
};

struct Transformer::BuiltGraph {
    // An input of a section, and what an earlier one has for it.
    struct Copy {
        ggml_tensor* to;
        size_t section;  // the earlier one
        ggml_tensor* from;
        bool is_flow;  // tokens between blocks
    };
    struct Part {
        Part(const Backend& backend, size_t max_nodes, const Form& form, bool taps)
            : graph(backend, max_nodes, form, taps) {}

        Graph graph;
        PositionInputs pos = {};
        std::vector<Copy> copies;  // before it is computed
    };

    TransformerShape shape;
    bool keep_taps = false;
    std::vector<std::unique_ptr<Part>> parts;  // one per section
    StepInputs in;                             // of the first
    // What inputs hold.
    SharedTensor txt, negative_txt;
    std::vector<Position> positions;
    std::vector<float> guidance, time_zero;
    ggml_tensor* velocity = nullptr;  // of the last
};

std::vector<size_t> share_blocks(const TransformerSizes& sizes, const std::vector<double>& shares) {
    const auto n_double = static_cast<size_t>(sizes.n_double);
    const size_t n_blocks = n_double + static_cast<size_t>(sizes.n_single);
    check(shares.size() <= n_blocks, ErrorKind::bad_argument, shares.size(),
          " devices cannot share the ", n_blocks, " blocks of this transformer; use fewer");
    std::vector<double> weights(n_blocks);
    for (const ExpectedTensor& tensor : tensor_list(sizes)) {
        for (const bool is_double : {true, false}) {
            const std::string prefix = is_double ? "double_blocks." : "single_blocks.";
            if (tensor.name.starts_with(prefix)) {
                const size_t i = std::stoul(tensor.name.substr(prefix.size()));
                weights[i + (is_double ? 0 : n_double)] +=
                    static_cast<double>(tensor.shape.elements());
            }
        }
    }
    const double of_all = std::accumulate(weights.begin(), weights.end(), 0.0) /
                          std::accumulate(shares.begin(), shares.end(), 0.0);
    std::vector<size_t> counts;
    size_t block = 0;
    double taken = 0;
    double wanted = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
        wanted += shares[i] * of_all;
        const size_t left_to_others = shares.size() - 1 - i;
        size_t count = 0;
        while (block + left_to_others < n_blocks &&
               (count == 0 || left_to_others == 0 || taken + weights[block] / 2 <= wanted)) {
            taken += weights[block++];
            ++count;
        }
        counts.push_back(count);
    }
    return counts;
}

Transformer::Transformer(const Backend& backend, const TransformerSizes& sizes,
                         const Checkpoint& checkpoint, const WeightOptions& options)
    : Transformer(std::vector<BlockShare>{{&backend, 1}}, sizes, checkpoint, options) {}

Transformer::Transformer(const std::vector<BlockShare>& shares, const TransformerSizes& sizes,
                         const Checkpoint& checkpoint, const WeightOptions& options)
    : sizes_(sizes), network_(std::make_unique<TransformerNetwork>()) {
    const TransformerSizes& s = sizes_;
    std::vector<double> numbers;
    for (const BlockShare& share : shares) {
        numbers.push_back(share.share);
    }
    const std::vector<size_t> counts = share_blocks(s, numbers);
    const std::vector<ExpectedTensor> tensors = tensor_list(s);
    size_t first = 0;
    for (size_t i = 0; i < shares.size(); ++i) {
        sections_.push_back(std::make_unique<Section>(*shares[i].backend, first, first + counts[i],
                                                      checkpoint, tensors, options));
        first += counts[i];
    }
    check(s.head_dim % (2 * Rope::kMaxAxes) == 0, ErrorKind::bad_file,
          sections_.front()->weights.file(), ": head size ", s.head_dim,
          " cannot be shared by four position axes");
    *network_ = load_network(
        [&](size_t block) -> Weights& {
            for (const auto& section : sections_) {
                if (block < section->end) {
                    return section->weights;
                }
            }
            return sections_.back()->weights;
        },
        s);
    for (const auto& section : sections_) {
        section->form = choose_form(section->backend, section->weights, s.head_dim, s.hidden);
        section->weights.load(takes_columns(section->form));
    }
}

Transformer::~Transformer() = default;

Transformer::BuiltGraph& Transformer::graph_for(const TransformerShape& shape, bool keep_taps) {
    if (built_ && built_->shape == shape && built_->keep_taps == keep_taps) {
        return *built_;
    }
    if (shape.mode == ReferenceMode::extract) {
        prepare_cache(shape.n_ref);
    }
    check(shape.mode != ReferenceMode::cached || (cache_ && cache_->n_ref == shape.n_ref),
          ErrorKind::internal, "no keys and values of these references are kept");
    built_.reset();  // gives its memory back first
    const int64_t n_sequences = shape.n_pictures * shape.n_texts;
    const size_t nodes_of_block = 192 + 64 * static_cast<size_t>(n_sequences);
    const std::vector<CachedKv> cache =
        shape.mode == ReferenceMode::joint ? std::vector<CachedKv>() : cache_->blocks;
    TransformerShape own = shape;
    own.n_ref = shape.mode == ReferenceMode::cached ? 0 : shape.n_ref;
    auto built = std::make_unique<BuiltGraph>();
    built->shape = shape;
    built->keep_taps = keep_taps;
    Flow flow;
    TimeMods time;
    TimeMods kept_time;  // of the first section, for the others
    for (size_t i = 0; i < sections_.size(); ++i) {
        Section& section = *sections_[i];
        Form form = section.form;
        form.spare_columns = section.weights.spare_columns();
        built->parts.push_back(std::make_unique<BuiltGraph::Part>(
            section.backend, nodes_of_block * (section.end - section.first + 4), form, keep_taps));
        BuiltGraph::Part& part = *built->parts.back();
        Graph& g = part.graph;
        g.set_low_rank(&section.weights.low_rank());
        g.set_progress(sections_.front()->backend, section.first, n_blocks());
        if (section.weights.streams()) {
            g.set_before_block([&section](size_t block) { section.weights.enter_block(block); });
        }
        if (i == 0) {
            built->in = declare_inputs(g, sizes_, own);
        }
        part.pos = declare_positions(g, own);
        const AttentionLayout layout{
            shape.mode,
            shape.n_txt,
            shape.n_img,
            own.n_ref,
            n_sequences,
            rope_of_axes(g, part.pos, sizes_.head_dim, static_cast<float>(sizes_.rope_theta))};
        const bool is_last = i + 1 == sections_.size();
        if (i == 0) {
            time = time_mods(g, *network_, built->in);
            flow = begin_network(g, *network_, built->in, layout, shape.n_texts);
        } else {
            // Inputs in place of what other sections have computed.
            const auto from = [&](ggml_tensor* result, size_t source, bool is_flow,
                                  const std::string& name) -> ggml_tensor* {
                if (result == nullptr) {
                    return nullptr;
                }
                ggml_tensor* input = g.input_f32(name, {result->ne[0], result->ne[1]});
                part.copies.push_back({input, source, result, is_flow});
                return input;
            };
            const auto n_double = static_cast<size_t>(sizes_.n_double);
            const bool has_double = section.first < n_double;
            const bool has_single = section.end > n_double;
            time.img = from(has_double ? kept_time.img : nullptr, 0, false, "mod_img");
            time.txt = from(has_double ? kept_time.txt : nullptr, 0, false, "mod_txt");
            time.single = from(has_single ? kept_time.single : nullptr, 0, false, "mod_single");
            time.final = from(is_last ? kept_time.final : nullptr, 0, false, "mod_final");
            time.img_zero =
                from(has_double ? kept_time.img_zero : nullptr, 0, false, "mod_img_zero");
            time.single_zero =
                from(has_single ? kept_time.single_zero : nullptr, 0, false, "mod_single_zero");
            for (ggml_tensor** tokens : flow.all()) {
                *tokens = from(*tokens, i - 1, true, "tokens");
            }
        }
        run_blocks(g, *network_, flow, time, layout, cache, section.first, section.end);
        if (is_last) {
            built->velocity = end_network(g, *network_, flow, time, layout);
            g.finish(built->velocity);
            continue;
        }
        if (flow.z != nullptr) {
            flow.x = {nullptr, nullptr};
        }
        if (i == 0) {
            kept_time = time;
            for (ggml_tensor** mod : kept_time.all()) {
                *mod = *mod == nullptr ? nullptr : g.keep(*mod);
            }
        }
        ggml_tensor* last = nullptr;
        for (ggml_tensor** tokens : flow.all()) {
            if (*tokens != nullptr) {
                last = *tokens = g.keep(*tokens);
            }
        }
        g.finish(last);
    }
    built_ = std::move(built);
    return *built_;
}

// Uploads what has changed since the last step.
void Transformer::feed(BuiltGraph& built, const TransformerInput& input) {
    Graph& g = built.parts.front()->graph;
    std::vector<Position> positions = input.txt_pos;
    positions.insert(positions.end(), input.img_pos.begin(), input.img_pos.end());
    if (built.shape.mode == ReferenceMode::cached) {
        g.set(built.in.img, input.img.data);
    } else {
        g.set(built.in.img, with_references(input));
        positions.insert(positions.end(), input.ref_pos.begin(), input.ref_pos.end());
    }
    g.set(built.in.time, timestep_embedding(input.timestep));
    if (built.in.time_zero != nullptr) {
        const auto zero = timestep_embedding(0.0f);
        send_new(built.time_zero, zero, [&] { g.set(built.in.time_zero, zero); });
    }
    if (built.in.guidance != nullptr) {
        const auto guidance = timestep_embedding(input.guidance);
        send_new(built.guidance, guidance, [&] { g.set(built.in.guidance, guidance); });
    }
    send_new(built.positions, positions, [&] {
        for (const auto& part : built.parts) {
            for (size_t axis = 0; axis < part->pos.size(); ++axis) {
                std::vector<int32_t> ids;
                for (const Position& position : positions) {
                    ids.push_back(position[axis]);
                }
                part->graph.set(part->pos[axis], ids);
            }
        }
    });
    if (built.txt != input.txt || built.negative_txt != input.negative_txt) {
        std::vector<float> txt = input.txt->data;
        if (input.negative_txt) {
            txt.insert(txt.end(), input.negative_txt->data.begin(), input.negative_txt->data.end());
        }
        g.set(built.in.txt, txt);
        built.txt = input.txt;
        built.negative_txt = input.negative_txt;
    }
}

HostTensor Transformer::predict(const TransformerInput& input, ReferenceMode mode, Taps* taps) {
    const TransformerSizes& s = sizes_;
    const int64_t n_ref = input.ref.data.empty() ? 0 : input.ref.ne[1];
    check(input.img.ne[0] == s.channels && (n_ref == 0 || input.ref.ne[0] == s.channels) &&
              input.txt->ne[0] == s.text_width,
          ErrorKind::bad_argument, "the transformer takes ", s.channels,
          " latent channels and text features ", s.text_width, " wide, not ", input.img.ne[0],
          " and ", input.txt->ne[0], "; use the text encoder and autoencoder made for it");
    const TransformerShape shape = {.mode = mode,
                                    .n_img = input.img.ne[1],
                                    .n_ref = n_ref,
                                    .n_txt = input.txt->ne[1],
                                    .n_pictures = input.img.ne[2],
                                    .n_texts = input.negative_txt ? 2 : 1};
    check(mode != ReferenceMode::extract || (shape.n_pictures == 1 && shape.n_texts == 1),
          ErrorKind::internal, "what is kept of references is computed with one picture");
    BuiltGraph& built = graph_for(shape, taps != nullptr);
    feed(built, input);
    for (const auto& part : built.parts) {
        for (const BuiltGraph::Copy& copy : part->copies) {
            part->graph.set_from(copy.to, built.parts[copy.section]->graph, copy.from);
        }
        part->graph.compute();
        if (taps != nullptr) {
            taps->merge(part->graph.read_taps());
        }
    }
    HostTensor velocity = built.parts.back()->graph.read(built.velocity);
    velocity.ne = {s.channels, shape.n_img, shape.n_pictures * shape.n_texts, 1};
    return velocity;
}

// Makes room for the keys and values of n_ref reference tokens.
void Transformer::prepare_cache(int64_t n_ref) {
    if (cache_ && cache_->n_ref == n_ref) {
        return;
    }
    built_.reset();  // it may point into the old cache
    const TransformerSizes& s = sizes_;
    const auto n_blocks = static_cast<size_t>(s.n_double + s.n_single);
    cache_.reset();  // gives its memory back first
    auto cache = std::make_unique<KvCache>();
    cache->n_ref = n_ref;
    cache->context = TensorContext(2 * n_blocks);
    for (const auto& section : sections_) {
        std::vector<ggml_tensor*> tensors;
        const auto place = [&] {
            tensors.push_back(ggml_new_tensor_3d(cache->context.get(), kept_type(section->form),
                                                 s.head_dim, s.hidden / s.head_dim, n_ref));
            return tensors.back();
        };
        for (size_t i = section->first; i < section->end; ++i) {
            ggml_tensor* k = place();
            cache->blocks.push_back({k, place()});
        }
        cache->buffers.push_back(
            section->backend.allocate(tensors, section->backend.memory_for(tensors.front()),
                                      concat("what is kept of ", n_ref, " reference tokens")));
    }
    cache_ = std::move(cache);
}

const std::shared_ptr<const AdapterSet>& Transformer::adapters() const {
    return sections_.front()->weights.adapters();
}

bool Transformer::can_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) const {
    return std::all_of(sections_.begin(), sections_.end(), [&](const auto& section) {
        return section->weights.can_set_adapters(adapters);
    });
}

bool Transformer::try_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) {
    if (!can_set_adapters(adapters)) {
        return false;
    }
    built_.reset();
    bool done = false;
    try {
        done = std::all_of(sections_.begin(), sections_.end(), [&](const auto& section) {
            return section->weights.try_set_adapters(adapters);
        });
    } catch (...) {
        drop_adapters();
        throw;
    }
    if (!done) {
        drop_adapters();
    }
    return done;
}

void Transformer::drop_adapters() {
    for (const auto& section : sections_) {
        section->weights.drop_adapters();
    }
}

void Transformer::reserve(const TransformerShape& shape) {
    graph_for(shape, /*keep_taps=*/false);
}

Graph* Transformer::graph() const {
    return built_ ? &built_->parts.front()->graph : nullptr;
}

std::vector<Graph*> Transformer::graphs() const {
    std::vector<Graph*> graphs;
    for (size_t i = 0; built_ && i < built_->parts.size(); ++i) {
        graphs.push_back(&built_->parts[i]->graph);
    }
    return graphs;
}

std::vector<BlockRange> Transformer::block_ranges() const {
    std::vector<BlockRange> ranges;
    for (size_t i = 0; i < sections_.size(); ++i) {
        const Section& section = *sections_[i];
        BlockRange range = {
            &section.backend, section.first, section.end, section.weights.memory().own, {}};
        if (built_) {
            range.compute += built_->parts[i]->graph.memory();
        }
        const uint64_t kept = cache_ ? cache_->buffers[i].bytes : 0;
        range.compute += section.backend.is_cpu() ? MemoryUse{0, kept} : MemoryUse{kept, 0};
        ranges.push_back(range);
    }
    return ranges;
}

std::vector<Crossing> Transformer::crossings() const {
    std::vector<Crossing> crossings;
    const auto add = [&](const Backend* from, const Backend* to, const ggml_tensor* tensor,
                         bool is_flow) {
        const auto found = std::find_if(crossings.begin(), crossings.end(), [&](const Crossing& c) {
            return c.from == from && c.to == to;
        });
        Crossing& crossing =
            found != crossings.end() ? *found : crossings.emplace_back(Crossing{from, to});
        (is_flow ? crossing.activations : crossing.others) += ggml_nbytes(tensor);
    };
    if (!built_) {
        return crossings;
    }
    add(nullptr, &sections_.front()->backend, built_->in.img, true);
    add(nullptr, &sections_.front()->backend, built_->in.time, false);
    for (size_t i = 0; i < sections_.size(); ++i) {
        for (const BuiltGraph::Copy& copy : built_->parts[i]->copies) {
            add(&sections_[copy.section]->backend, &sections_[i]->backend, copy.to, copy.is_flow);
        }
    }
    add(&sections_.back()->backend, nullptr, built_->velocity, true);
    return crossings;
}

MemoryUse Transformer::compute_memory() const {
    MemoryUse use;
    for (const BlockRange& range : block_ranges()) {
        use += range.compute;
    }
    return use;
}

WeightMemory Transformer::weight_memory() const {
    WeightMemory memory;
    for (const auto& section : sections_) {
        memory.own += section->weights.memory().own;
        memory.mapped += section->weights.memory().mapped;
        memory.loading = std::max(memory.loading, section->weights.memory().loading);
    }
    return memory;
}

}  // namespace flux2
