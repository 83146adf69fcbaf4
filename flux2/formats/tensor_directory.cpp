#include "formats/tensor_directory.hpp"

#include "base/check.hpp"

#include <algorithm>
#include <limits>

namespace flux2 {

void check_name(const std::string& where, const std::string& name) {
    constexpr size_t kMaxName = 127;  // GGML_MAX_NAME less the closing zero
    check(!name.empty() && name.size() <= kMaxName && name.find('\0') == std::string::npos,
          ErrorKind::bad_file, where, ": the name is ", name.size(), " bytes long, 1 to ", kMaxName,
          " without a zero byte are expected; the file is broken");
}

void check_dims(const std::string& where, uint64_t n_dims) {
    check(n_dims <= Shape::kMaxDims, ErrorKind::bad_file, where, " has ", n_dims,
          " dimensions, at most ", Shape::kMaxDims, " are expected; the file is broken");
}

void append_dim_slowest(const std::string& where, Shape& shape, int64_t size) {
    check(size >= 0, ErrorKind::bad_file, where, " has a dimension of ", size,
          "; the file is broken");
    // A size of 0 is valid; it counts as 1 here, so that the other sizes are still checked.
    int64_t product = 1;
    for (const int64_t known : shape.ne) {
        product *= std::max<int64_t>(known, 1);
    }
    check(std::max<int64_t>(size, 1) <= std::numeric_limits<int64_t>::max() / 16 / product,
          ErrorKind::bad_file, where, " has more elements than any file could hold (", size,
          " times ", product, "); the file is broken");
    shape.ne[static_cast<size_t>(shape.n_dims++)] = size;
}

uint64_t checked_data_bytes(const std::string& where, TensorType type, const Shape& shape) {
    check(shape.ne[0] % block_elements(type) == 0, ErrorKind::bad_file, where, " has rows of ",
          shape.ne[0], " elements, but ", type_name(type), " needs a multiple of ",
          block_elements(type), "; the file is broken");
    const auto blocks = static_cast<uint64_t>(shape.elements() / block_elements(type));
    check(blocks <= std::numeric_limits<uint64_t>::max() / 2 / block_bytes(type),
          ErrorKind::bad_file, where,
          " has more bytes than any file could hold; the file is broken");
    return blocks * block_bytes(type);
}

void check_no_overlap(const std::string& file, const std::vector<TensorInfo>& tensors) {
    std::vector<const TensorInfo*> by_offset;
    for (const TensorInfo& tensor : tensors) {
        if (!tensor.bytes.empty()) {
            by_offset.push_back(&tensor);
        }
    }
    std::sort(by_offset.begin(), by_offset.end(), [](const TensorInfo* a, const TensorInfo* b) {
        return a->bytes.data() < b->bytes.data();
    });
    for (size_t i = 1; i < by_offset.size(); ++i) {
        const TensorInfo& before = *by_offset[i - 1];
        check(before.bytes.data() + before.bytes.size() <= by_offset[i]->bytes.data(),
              ErrorKind::bad_file, file, ": tensor ", by_offset[i]->name, " overlaps tensor ",
              before.name, "; the file is broken");
    }
}

}  // namespace flux2
