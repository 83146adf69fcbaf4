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

// 16 rows of floats, `stride` apart -> n_tiles tiles on the left. Only the first n_rows are read,
// the others become zeros.
void make_amx_rows(const float* from, int64_t stride, int64_t n_rows, int64_t n_tiles,
                   uint16_t* tiles);

// Tiles on the right from 8-bit values in the same order, and the scales of the 16 columns in F16.
constexpr int64_t kAmxQ8Bytes = kAmxTileSize + 2 * kAmxColumns;  // as many as 16 blocks of Q8_0
void expand_amx_q8(const int8_t* packed, int64_t n_tiles, uint16_t* tiles);

}  // namespace flux2::cpu
