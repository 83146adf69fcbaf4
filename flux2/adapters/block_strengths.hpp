// Factors for single blocks of the transformer, as users write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flux2 {

class BlockStrengths {
  public:
    // "double=0.5,single.0-9=0,double.3=1.2": all double blocks, single blocks 0 to 9, one block.
    // Of several that name a block the last counts. An empty text names none. Throws bad_argument,
    // giving such an example, for any other text.
    explicit BlockStrengths(const std::string& text);

    // The factor for a tensor such as "double_blocks.3.img_attn.qkv.weight"; 1 where none is named.
    float of(const std::string& tensor) const;

  private:
    struct Entry {
        std::string prefix;  // "double_blocks."
        int64_t first, last;
        float strength;
    };
    static Entry parse_entry(const std::string& entry);

    std::vector<Entry> entries_;
};

}  // namespace flux2
