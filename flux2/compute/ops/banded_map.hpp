// Feature maps some rows at a time, for networks whose maps do not all fit into memory. The results
// are those of whole maps: each band is computed with the rows around it that it depends on, and
// norms use moments of the whole map. Only for graphs of nodes of our own (not Operations::stock):
// there the rows of a map are contiguous.
#pragma once

#include "compute/ops/feature_map_ops.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace flux2 {

struct Rows {
    int64_t first = 0;
    int64_t n = 0;

    int64_t end() const { return first + n; }
};

struct MapSize {
    int64_t channels = 0, w = 0, h = 0;

    int64_t values() const { return channels * w * h; }
};

MapSize size_of(const FeatureMap& x);
// Of one height, except for the last; together all rows of the map.
std::vector<Rows> bands_of(const Graph& g, const MapSize& size);
// Whether bands save enough: never in graphs without them.
bool is_large(const Graph& g, const MapSize& size);

// A feature map that is read some rows at a time: either kept in memory, or computed again whenever
// rows are asked for. Copies are the same map. Must not outlive its graph.
class BandedMap {
  public:
    using Compute = std::function<FeatureMap(const Rows& rows, MapPrecision precision)>;

    BandedMap(Graph& g, const MapSize& size, Compute compute);
    // Kept.
    BandedMap(Graph& g, const FeatureMap& whole);
    // Kept, and empty until all rows are put, from the first on.
    BandedMap(Graph& g, const MapSize& size);

    const MapSize& size() const;
    bool is_kept() const;
    FeatureMap rows(const Rows& rows, MapPrecision precision = MapPrecision::f32) const;
    // rows() with up to `around` more at both ends, where the map has them, as a convolution reads
    // them; `result` of it without what the additional rows gave.
    FeatureMap rows_around(const Rows& rows, int64_t around) const;
    FeatureMap without_around(const FeatureMap& result, const Rows& rows, int64_t around) const;
    // How rows must be that are put into a kept map.
    MapPrecision precision() const;
    // Of a kept map: replaces these rows. What was asked for before may be overwritten.
    void put(const FeatureMap& from, const Rows& rows);
    // Of a kept map all of whose rows were put.
    FeatureMap whole() const;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

// The map in memory: computed now, band by band, unless it is kept already.
BandedMap kept(Graph& g, const BandedMap& x);

// As conv, conv_up, conv_down, conv_down_centred and group_norm_silu; what is returned is computed
// when its rows are asked for. Only the moments of x are taken at once.
BandedMap conv(Graph& g, const Conv& w, const BandedMap& x);
BandedMap conv_up(Graph& g, const Conv& w, const BandedMap& x);
BandedMap conv_down(Graph& g, const Conv& w, const BandedMap& x);
BandedMap conv_down_centred(Graph& g, const Conv& w, const BandedMap& x);
Moments moments(Graph& g, const BandedMap& x);
BandedMap group_norm_silu(Graph& g, const GroupNorm& w, const BandedMap& x, const Moments& moments);
BandedMap group_norm_silu(Graph& g, const GroupNorm& w, const BandedMap& x);
BandedMap relu(Graph& g, const BandedMap& x);

// The rows of `to` become what `finish` makes of those of x and of `around` more at both ends, band
// by band; it returns as many rows as it is given. x is not kept, but may be computed from `to`: a
// band of x is computed before the rows of the band above it are put. So finish may read `to` in
// the rows of the band, not around it.
using Finish = std::function<FeatureMap(const FeatureMap& x, const Rows& with_around)>;
void replace(Graph& g, BandedMap& to, const BandedMap& x, int64_t around, const Finish& finish);

}  // namespace flux2
