// Matrix multiplies with AMX, instructions of newer Xeons that multiply 16 rows of 32 values in
// BF16 with 32 rows of 16, about fifteen times as fast as AVX-512 in F32.
//
// A tile is 1 KB: of the left matrix 16 rows of 32 values; of the right one 16 rows, each with two
// values of every one of 16 columns, [32 / 2][16][2].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace flux2::cpu {

constexpr int64_t kAmxRows = 16;     // of a tile on the left, and of a result
constexpr int64_t kAmxColumns = 16;  // of a tile on the right, and of a result
constexpr int64_t kAmxInner = 32;
constexpr int64_t kAmxTileSize = kAmxRows * kAmxInner;  // values

// Whether this CPU has the instructions and the system lets this process use them.
bool has_amx();

// While it exists, the calling thread can multiply. Shapes of tiles that the thread had before are
// there again afterwards: ggml sets its own only once.
class AmxThread {
  public:
    AmxThread();
    ~AmxThread();
    AmxThread(const AmxThread&) = delete;
    AmxThread& operator=(const AmxThread&) = delete;

  private:
    alignas(64) std::array<std::byte, 64> before_;
};

// 32 rows times 32 columns. Both are two runs of n_tiles tiles of BF16; results are 32 rows of 32
// floats, `stride` floats apart.
struct AmxProduct {
    const uint16_t* rows;
    int64_t rows_distance;  // values from the first run to the second
    const uint16_t* columns;
    int64_t columns_distance;
    int64_t n_tiles;
    float* results;
    int64_t stride;
    bool adds;  // to what results holds
};

void multiply(const AmxProduct& m);

// Scores of attention: the same 32 x 32, of vectors in two parts each, (a + a') (b + b') without
// a' b'. A run of rows or columns is n_tiles tiles of first parts, then as many of second ones.
// Results are written, not added to.
void multiply_split(const AmxProduct& m);

// Convolution: twice 16 neighbouring pixels times the filters of 32 columns. Pixels are planes of
// 32 channels each in two parts: the first of a plane, its second, the first of the next, and so
// on. Columns are two runs of tiles, one for each position of every plane, row by row.
struct AmxConvolution {
    const uint16_t* pixels;   // under the first position
    int64_t pixels_distance;  // values from the first 16 to the second
    int64_t row;              // values from one row of pixels to the next
    int64_t plane;            // and from one part of a plane to the next
    int64_t n_planes;
    int64_t size;  // of the filter: size x size positions
    const uint16_t* columns;
    const uint16_t* columns_rest;  // second parts, for the pixels' first ones only; may be null
    int64_t columns_distance;      // values from the first run to the second
    float* results;                // [32][32]
    // The columns of a later call, some lines of the cache for each tile, are brought into the
    // second cache meanwhile.
    const uint16_t* next_columns;
    int64_t n_cache_lines;
};

void convolve(const AmxConvolution& m);

}  // namespace flux2::cpu
