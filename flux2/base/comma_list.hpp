// Lists in one text, as options have them: "2,1", "CUDA0,CPU".
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace flux2 {

// The texts between the commas; empty ones included.
inline std::vector<std::string> split_list(const std::string& list) {
    std::vector<std::string> items;
    for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        items.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return items;
}

}  // namespace flux2
