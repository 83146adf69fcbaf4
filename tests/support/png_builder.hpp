// Builds PNGs, valid or broken, from chunks; independent of the code under test.
#pragma once

#include "support/support.hpp"

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace flux2::test {

Bytes big_endian(uint32_t value, int n_bytes = 4);
Bytes little_endian(uint32_t value, int n_bytes = 4);
Bytes bytes(std::initializer_list<int> values);
Bytes operator+(Bytes a, const Bytes& b);

// With its length and its checksum.
Bytes chunk(std::string_view type, const Bytes& data);

// PNG's colour types.
enum Colour { grey = 0, rgb = 2, palette = 3, grey_alpha = 4, rgb_alpha = 6 };

// A PNG from its rows, each with its filter byte; `more` is inserted before the pixels.
Bytes png(uint32_t width, uint32_t height, int depth, Colour colour, const Bytes& rows,
          const Bytes& more = {});

}  // namespace flux2::test
