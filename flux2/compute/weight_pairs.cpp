// The part of Weights that pairs of low rank need: which matrices have them, columns of matrices
// for them, their tensors, and other adapters in place of those before.

#include "adapters/adapter_set.hpp"
#include "base/check.hpp"
#include "checkpoints/checkpoint.hpp"
#include "compute/graph.hpp"
#include "compute/plain/token_nodes.hpp"
#include "compute/row_length.hpp"
#include "compute/weights.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace flux2 {

// The matrices that pairs of low rank run beside.
std::vector<Weights::Bound*> Weights::with_pairs() {
    std::vector<Bound*> found;
    for (Bound& bound : bound_) {
        if (options_.adapters && options_.adapters->changes(bound.source->name) &&
            !bound.rewritten) {
            found.push_back(&bound);
        }
    }
    return found;
}

bool Weights::takes_columns(const Bound& bound) const {
    return pairs_as_columns_ && !streams() && bound.block != kNoBlock &&
           bound.tensor->type == GGML_TYPE_BF16;
}

bool Weights::joins_unpacked(const Bound& bound) const {
    return pairs_as_columns_ && bound.block != kNoBlock && own::can_unpack(bound.tensor->type);
}

int64_t Weights::spare_columns() const {
    int64_t most = 0;
    for (const Bound& bound : bound_) {
        const auto pair = low_rank_.table().find(bound.tensor);
        if (pair != low_rank_.table().end()) {
            const ggml_tensor* up = pair->second.up;
            most = std::max(most, pair->second.joins_unpacked ? up->ne[0] : bound.n_columns);
        }
    }
    return most;
}

// Moves the tensors of a block to new memory, where the matrices of pairs have the columns that
// these need.
void Weights::widen_block(int block) {
    std::vector<Bound*> bounds;
    for (Bound& bound : bound_) {
        if (bound.block == block && bound.use != Use::look_up) {
            bounds.push_back(&bound);
        }
    }
    const TensorContext context(bounds.size());
    std::vector<int64_t> columns;
    std::vector<ggml_tensor*> fresh;
    for (const Bound* bound : bounds) {
        const std::string& name = bound->source->name;
        const bool has_pair = options_.adapters->changes(name) && takes_columns(*bound);
        columns.push_back(std::max(
            bound->n_columns,
            has_pair ? LowRankWeights::padded_columns(options_.adapters->rank(name)) : int64_t{0}));
        fresh.push_back(ggml_dup_tensor(context.get(), bound->tensor));
        set_row_length(fresh.back(), bound->source->shape.ne[0] + columns.back());
    }
    TensorBuffer buffer = backend_.allocate(fresh, backend_.buffer_type(), checkpoint_.file());
    buffer.set_usage(GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    if (!backend_.measures_only()) {
        Graph g(backend_, 8 * bounds.size());
        const auto of_file = [&](ggml_tensor* tensor, int64_t n) {
            return ggml_view_2d(g, tensor, n, ggml_nrows(tensor), tensor->nb[1], 0);
        };
        ggml_tensor* copied = nullptr;
        for (size_t i = 0; i < bounds.size(); ++i) {
            const int64_t n = bounds[i]->source->shape.ne[0];
            copied = ggml_cpy(g, of_file(bounds[i]->tensor, n), of_file(fresh[i], n));
            g.expand(copied);
        }
        g.finish(copied);
        g.compute();
    }
    for (size_t i = 0; i < bounds.size(); ++i) {
        bounds[i]->n_columns = columns[i];
        set_row_length(bounds[i]->tensor, fresh[i]->ne[0]);
        bounds[i]->tensor->data = fresh[i]->data;
        bounds[i]->tensor->buffer = fresh[i]->buffer;
        bounds[i]->tensor->extra = fresh[i]->extra;
    }
    TensorBuffer& held = block_buffers_.at(block);
    memory_.own.device += buffer.bytes;
    memory_.own.device -= held.bytes;
    held = std::move(buffer);
}

// Returns false when there is no memory for it.
bool Weights::widen_where_needed() {
    std::set<int> blocks;
    for (const Bound* bound : with_pairs()) {
        if (takes_columns(*bound) && LowRankWeights::padded_columns(options_.adapters->rank(
                                         bound->source->name)) > bound->n_columns) {
            blocks.insert(bound->block);
        }
    }
    try {
        std::for_each(blocks.begin(), blocks.end(), [&](int block) { widen_block(block); });
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::out_of_memory) {
            throw;
        }
        return false;
    }
    return true;
}

void Weights::place_pairs() {
    std::vector<LowRankWeights::Item> items;
    for (const Bound* bound : with_pairs()) {
        const AdapterSet& adapters = *options_.adapters;
        const std::string& name = bound->source->name;
        items.push_back({.matrix = bound->tensor,
                         .n_in = bound->source->shape.ne[0],
                         .n_columns = bound->n_columns,
                         .rank = adapters.rank(name),
                         .joins_unpacked = joins_unpacked(*bound),
                         .read = [&adapters, &name] { return adapters.low_rank(name); }});
    }
    bytes_of_pairs() -= low_rank_.bytes();
    low_rank_.place(items);
    bytes_of_pairs() += low_rank_.bytes();
}

uint64_t& Weights::bytes_of_pairs() {
    return backend_.is_cpu() ? memory_.own.host : memory_.own.device;
}

bool Weights::can_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) const {
    return std::none_of(bound_.begin(), bound_.end(), [&](const Bound& bound) {
        return bound.rewritten || is_rewritten(adapters.get(), bound.source->name, bound.use);
    });
}

bool Weights::try_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) {
    if (!can_set_adapters(adapters)) {
        return false;
    }
    drop_adapters();  // pairs in columns of blocks that are moved would be lost
    options_.adapters = adapters;
    bool has_room = false;
    try {
        has_room = widen_where_needed();
        if (has_room) {
            place_pairs();
        }
    } catch (...) {
        drop_adapters();
        throw;
    }
    if (!has_room) {
        drop_adapters();
    }
    return has_room;
}

void Weights::drop_adapters() {
    bytes_of_pairs() -= low_rank_.bytes();
    low_rank_.clear();
    options_.adapters = nullptr;
}

}  // namespace flux2
