// Matrix multiplies for CPUs whose instructions multiply small matrices: scores of attention from
// pairs of 8-bit integers (smmla: 2x8 times 8x2), its sums of values, and rows times weights, from
// BF16 (bfmmla: 2x4 times 4x2). They run at about seven and six times the speed of F32.
//
// Rows go in tiles of 10, columns in panels of 8; what an instruction takes of a row or column,
// eight bytes, is contiguous. Results of attention lie tile after tile, each in blocks of 2x2.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace flux2::cpu {

constexpr int64_t kTileRows = 10;
constexpr int64_t kTileColumns = 8;
constexpr int64_t kTileSize = kTileRows * kTileColumns;
constexpr int64_t kGroup = 8;      // contiguous bytes of one row or column
constexpr int64_t kBf16Group = 4;  // values of BF16 in them

// Whether this CPU and this build can do what follows.
bool has_matrix_tiles();

// The nearest BF16, of two equally near the even one.
inline uint16_t to_bf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A value of a vector in 15 bits: (kHigh * high + low) steps, a step being the largest value of the
// vector / kMost.
struct Split {
    static constexpr int32_t kHigh = 128;
    static constexpr int32_t kMost = 127 * kHigh + 63;
    int8_t high, low;
};

inline Split split(float steps) {
    constexpr float kRounds = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    const int32_t whole = std::bit_cast<int32_t>(steps + kRounds) - std::bit_cast<int32_t>(kRounds);
    const int32_t high = (whole + Split::kHigh / 2) >> 7;
    return {static_cast<int8_t>(high), static_cast<int8_t>(whole - high * Split::kHigh)};
}

// Where row i and column j of a tile's result lie among its 80 floats.
constexpr int64_t tile_place(int64_t i, int64_t j) {
    return (i / 2 * (kTileColumns / 2) + j / 2) * 4 + i % 2 * 2 + j % 2;
}

// Products of split vectors: the sum of kHigh * high * high + high * low + low * high, which is the
// product in steps of both / kHigh, but for low * low, times the scale of the column.
struct ScoreTiles {
    const int8_t* rows;  // tiles: high parts [n_inner / 8][10][8], then low parts
    int64_t n_tiles, n_inner;
    const int8_t* columns;  // panels: high parts [n_inner / 8][8][8], low parts, scales in F32 [8]
    int64_t panel_bytes, n_panels;
    float* results;
};

void multiply(const ScoreTiles& m);

struct ValueTiles {
    const uint16_t* rows;  // tiles [n_inner / 4][10][4] of BF16
    int64_t n_tiles, n_inner;
    const uint16_t* columns;  // panels [n_inner / 4][8][4] of BF16
    int64_t panel_size, n_panels;
    float* results;
    // A factor for each row of what `results` holds, to which the product is added. Null: it holds
    // nothing yet.
    const float* factors;
};

void multiply(const ValueTiles& m);

// Rows times columns of BF16 with results row after row (compute/cpu/tile_linear).
struct LinearTile {
    const uint16_t* rows;     // a tile [n_inner / 4][10][4]
    const uint16_t* columns;  // a panel [n_inner / 4][8][4]
    int64_t n_inner;
    float* results;  // 10 rows of 8
    int64_t stride;  // floats from row to row
    bool adds;       // to what `results` holds
};

void multiply(const LinearTile& m);

// The softmax of a tile's rows, whose scores arrive in blocks of keys. A score weighs 2 to the
// power of scale * (score - the highest so far); what was summed up before a higher one came is
// scaled down.
struct SoftmaxTile {
    std::array<float, kTileRows> scale = {};
    std::array<float, kTileRows> highest = lowest();
    std::array<float, kTileRows> sum = {};

    // Turns n_panels results of one tile into weights, a tile of BF16 with the keys of a group in
    // the order 0 2 1 3. `factors` receives each row's factor for everything before.
    void add(const float* scores, int64_t n_panels, uint16_t* weights, float* factors);

  private:
    static constexpr std::array<float, kTileRows> lowest() {
        std::array<float, kTileRows> rows = {};
        rows.fill(-1e30f);
        return rows;
    }
};

}  // namespace flux2::cpu
