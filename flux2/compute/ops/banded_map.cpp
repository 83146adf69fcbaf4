#include "compute/ops/banded_map.hpp"

#include "compute/plain/put_node.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace flux2 {
namespace {

constexpr int64_t kConvReach = 1;  // rows that a filter of 3x3 reads above and below

// Rows [from, from + n) of x.
FeatureMap part_of(Graph& g, const FeatureMap& x, int64_t from, int64_t n) {
    ggml_tensor* t = x.tensor;
    if (from == 0 && n == t->ne[2]) {
        return x;
    }
    return {ggml_view_3d(g, t, t->ne[0], t->ne[1], n, t->nb[1], t->nb[2],
                         static_cast<size_t>(from) * t->nb[2])};
}

Rows widened(const Rows& rows, int64_t around, int64_t height) {
    const int64_t first = std::max<int64_t>(0, rows.first - around);
    return {first, std::min(height, rows.end() + around) - first};
}

int64_t reach_of(const Conv& w) {
    return w.weight->ne[0] / 2;
}

int64_t n_out(const Conv& w) {
    return w.weight->ne[3];
}

}  // namespace

MapSize size_of(const FeatureMap& x) {
    return {x.tensor->ne[0], x.tensor->ne[1], x.tensor->ne[2]};
}

std::vector<Rows> bands_of(const Graph& g, const MapSize& size) {
    constexpr int64_t kStep = 4;  // rows that the CPU's convolution computes together
    const int64_t most = g.form().band_values;
    const int64_t n_bands = (size.values() + most - 1) / most;
    const int64_t height =
        std::min(size.h, ((size.h + n_bands - 1) / n_bands + kStep - 1) / kStep * kStep);
    std::vector<Rows> bands;
    for (int64_t first = 0; first < size.h; first += height) {
        bands.push_back({first, std::min(height, size.h - first)});
    }
    return bands;
}

bool is_large(const Graph& g, const MapSize& size) {
    constexpr int64_t kFewBands = 4;
    const int64_t most = g.form().band_values;
    return most > 0 && size.values() > kFewBands * most;
}

struct BandedMap::State {
    Graph& g;
    MapSize size;
    Compute compute;                // empty: kept
    ggml_tensor* tensor = nullptr;  // of a kept map, after the last put
};

BandedMap::BandedMap(Graph& g, const MapSize& size, Compute compute)
    : state_(std::make_shared<State>(State{g, size, std::move(compute)})) {}

BandedMap::BandedMap(Graph& g, const FeatureMap& whole)
    : state_(std::make_shared<State>(State{g, size_of(whole), {}, whole.tensor})) {}

BandedMap::BandedMap(Graph& g, const MapSize& size)
    : state_(std::make_shared<State>(State{g, size, {}})) {}

const MapSize& BandedMap::size() const {
    return state_->size;
}

bool BandedMap::is_kept() const {
    return !state_->compute;
}

FeatureMap BandedMap::rows(const Rows& rows, MapPrecision precision) const {
    return is_kept() ? part_of(state_->g, whole(), rows.first, rows.n)
                     : state_->compute(rows, precision);
}

FeatureMap BandedMap::rows_around(const Rows& wanted, int64_t around) const {
    return rows(widened(wanted, around, size().h));
}

FeatureMap BandedMap::without_around(const FeatureMap& result, const Rows& wanted,
                                     int64_t around) const {
    return part_of(state_->g, result, wanted.first - widened(wanted, around, size().h).first,
                   wanted.n);
}

MapPrecision BandedMap::precision() const {
    const ggml_tensor* map = state_->tensor;
    return map != nullptr && map->type == GGML_TYPE_F32 ? MapPrecision::f32 : MapPrecision::compact;
}

void BandedMap::put(const FeatureMap& from, const Rows& rows) {
    const own::PutParams place = {.first = rows.first};
    ggml_tensor*& map = state_->tensor;
    map = map == nullptr ? own::begin_put(state_->g, from.tensor, size().h, place)
                         : own::put(state_->g, map, from.tensor, place);
    state_->g.end_block({map});
}

FeatureMap BandedMap::whole() const {
    return {state_->tensor};
}

BandedMap kept(Graph& g, const BandedMap& x) {
    if (x.is_kept()) {
        return x;
    }
    BandedMap result(g, x.size());
    for (const Rows& rows : bands_of(g, x.size())) {
        result.put(x.rows(rows, MapPrecision::compact), rows);
    }
    return result;
}

BandedMap conv(Graph& g, const Conv& w, const BandedMap& x) {
    return {g,
            {n_out(w), x.size().w, x.size().h},
            [&g, w, x](const Rows& rows, MapPrecision precision) {
                const int64_t around = reach_of(w);
                return x.without_around(conv(g, w, x.rows_around(rows, around), precision), rows,
                                        around);
            }};
}

BandedMap conv_up(Graph& g, const Conv& w, const BandedMap& x) {
    const MapSize size = {n_out(w), 2 * x.size().w, 2 * x.size().h};
    return {g, size, [&g, w, x](const Rows& rows, MapPrecision precision) {
                // Pixels are doubled before the filter sees them.
                const int64_t first = rows.first / 2;
                const Rows below = {first, (rows.end() + 1) / 2 - first};
                const Rows read = widened(below, kConvReach, x.size().h);
                return part_of(g, conv_up(g, w, x.rows(read), precision),
                               rows.first - 2 * read.first, rows.n);
            }};
}

BandedMap conv_down(Graph& g, const Conv& w, const BandedMap& x) {
    const MapSize size = {n_out(w), x.size().w / 2, x.size().h / 2};
    return {g, size, [&g, w, x](const Rows& rows, MapPrecision precision) {
                // The filter begins at the pixel itself, and half a pixel is no result.
                const Rows read = {2 * rows.first,
                                   std::min(x.size().h, 2 * rows.end() + 1) - 2 * rows.first};
                return conv_down(g, w, x.rows(read), precision);
            }};
}

BandedMap conv_down_centred(Graph& g, const Conv& w, const BandedMap& x) {
    const MapSize size = {n_out(w), x.size().w / 2, x.size().h / 2};
    return {g, size, [&g, w, x](const Rows& rows, MapPrecision precision) {
                // One more result above has the row that the first one reads.
                const int64_t first = std::max<int64_t>(0, rows.first - 1);
                const Rows read = {2 * first, 2 * (rows.end() - first)};
                return part_of(g, conv_down_centred(g, w, x.rows(read), precision),
                               rows.first - first, rows.n);
            }};
}

Moments moments(Graph& g, const BandedMap& x) {
    const std::vector<Rows> bands = bands_of(g, x.size());
    Moments all = {.n_pixels = x.size().w * x.size().h,
                   .band_pixels = x.size().w * bands.front().n};
    for (size_t i = 0; i < bands.size(); ++i) {
        ggml_tensor* part = moments(g, x.rows(bands[i]), x.size().h);
        const own::PutParams place = {.first = static_cast<int64_t>(i)};
        all.of_bands = all.of_bands == nullptr
                           ? own::begin_put(g, part, static_cast<int64_t>(bands.size()), place)
                           : own::put(g, all.of_bands, part, place);
        g.expand(all.of_bands);  // one band after the other
    }
    return all;
}

BandedMap group_norm_silu(Graph& g, const GroupNorm& w, const BandedMap& x,
                          const Moments& moments) {
    return {g, x.size(), [&g, w, x, moments](const Rows& rows, MapPrecision) {
                return group_norm_silu(g, w, x.rows(rows), moments);
            }};
}

BandedMap group_norm_silu(Graph& g, const GroupNorm& w, const BandedMap& x) {
    return group_norm_silu(g, w, x, moments(g, x));
}

BandedMap relu(Graph& g, const BandedMap& x) {
    return {g, x.size(), [&g, x](const Rows& rows, MapPrecision) { return relu(g, x.rows(rows)); }};
}

void replace(Graph& g, BandedMap& to, const BandedMap& x, int64_t around, const Finish& finish) {
    std::optional<FeatureMap> result;  // of the band before, not put yet
    Rows last;
    for (const Rows& rows : bands_of(g, to.size())) {
        const FeatureMap read = x.rows_around(rows, around);
        g.expand(read.tensor);
        if (result) {
            to.put(*result, last);
        }
        result = x.without_around(finish(read, widened(rows, around, to.size().h)), rows, around);
        g.expand(result->tensor);
        last = rows;
    }
    to.put(*result, last);
}

}  // namespace flux2
