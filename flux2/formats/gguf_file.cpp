#include "formats/gguf_file.hpp"

#include "base/check.hpp"

#include <gguf.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

namespace flux2 {
namespace {

// Reads the file's bytes in order; every read is checked against the remaining size.
class Cursor {
  public:
    Cursor(const std::string& file, std::span<const std::byte> bytes)
        : file_(file), bytes_(bytes) {}

    template <typename T>
    T read(const char* what) {
        require(sizeof(T), what);
        T value;
        std::memcpy(&value, bytes_.data() + position_, sizeof(T));
        position_ += sizeof(T);
        return value;
    }

    bool read_bool(const char* what) { return read<uint8_t>(what) != 0; }

    std::string read_string(const char* what) {
        const auto length = read<uint64_t>(what);
        require(length, what);
        std::string text(reinterpret_cast<const char*>(bytes_.data()) + position_, length);
        position_ += length;
        return text;
    }

    // Throws unless n elements of at least element_bytes each can still follow.
    void require(uint64_t n, const char* what, size_t element_bytes = 1) const {
        check(n <= remaining() / element_bytes, ErrorKind::bad_file, file_, ": ", what, " at byte ",
              position_, " claims ", n, " entries, but only ", remaining(),
              " bytes follow; the file is truncated or broken");
    }

    uint64_t position() const { return position_; }
    uint64_t remaining() const { return bytes_.size() - position_; }

  private:
    const std::string& file_;
    std::span<const std::byte> bytes_;
    uint64_t position_ = 0;
};

template <typename T>
T read_scalar(Cursor& cursor) {
    if constexpr (std::is_same_v<T, std::string>) {
        return cursor.read_string("a string");
    } else if constexpr (std::is_same_v<T, bool>) {
        return cursor.read_bool("a value");
    } else {
        return cursor.read<T>("a value");
    }
}

template <typename T>
MetadataValue read_value(Cursor& cursor, bool is_array) {
    if (!is_array) {
        return read_scalar<T>(cursor);
    }
    const auto n = cursor.read<uint64_t>("an array");
    // A string takes at least its length field.
    constexpr size_t kMinBytes = std::is_same_v<T, std::string> ? sizeof(uint64_t)
                                 : std::is_same_v<T, bool>      ? 1
                                                                : sizeof(T);
    cursor.require(n, "an array", kMinBytes);
    std::vector<T> values;
    for (uint64_t i = 0; i < n; ++i) {
        values.push_back(read_scalar<T>(cursor));
    }
    return values;
}

MetadataValue read_typed(const std::string& where, Cursor& cursor) {
    auto type = cursor.read<int32_t>("a value type");
    const bool is_array = type == GGUF_TYPE_ARRAY;
    if (is_array) {
        type = cursor.read<int32_t>("an array type");
    }
    switch (type) {
        case GGUF_TYPE_UINT8:
            return read_value<uint8_t>(cursor, is_array);
        case GGUF_TYPE_INT8:
            return read_value<int8_t>(cursor, is_array);
        case GGUF_TYPE_UINT16:
            return read_value<uint16_t>(cursor, is_array);
        case GGUF_TYPE_INT16:
            return read_value<int16_t>(cursor, is_array);
        case GGUF_TYPE_UINT32:
            return read_value<uint32_t>(cursor, is_array);
        case GGUF_TYPE_INT32:
            return read_value<int32_t>(cursor, is_array);
        case GGUF_TYPE_FLOAT32:
            return read_value<float>(cursor, is_array);
        case GGUF_TYPE_BOOL:
            return read_value<bool>(cursor, is_array);
        case GGUF_TYPE_STRING:
            return read_value<std::string>(cursor, is_array);
        case GGUF_TYPE_UINT64:
            return read_value<uint64_t>(cursor, is_array);
        case GGUF_TYPE_INT64:
            return read_value<int64_t>(cursor, is_array);
        case GGUF_TYPE_FLOAT64:
            return read_value<double>(cursor, is_array);
        default:
            fail(ErrorKind::bad_file, where, " has the unknown value type ", type,
                 "; the file is broken or newer than this program");
    }
}

Metadata read_metadata(const std::string& file, Cursor& cursor, uint64_t n_keys) {
    Metadata metadata(file);
    for (uint64_t i = 0; i < n_keys; ++i) {
        const std::string key = cursor.read_string("a metadata key");
        const std::string where = concat(file, ": metadata key ", key);
        check(!key.empty() && key.find('\0') == std::string::npos, ErrorKind::bad_file, where,
              " is empty or holds a zero byte; the file is broken");
        check(!metadata.contains(key), ErrorKind::bad_file, where,
              " appears twice; the file is broken");
        metadata.set(key, read_typed(where, cursor));
    }
    return metadata;
}

uint64_t read_alignment(const std::string& file, const Metadata& metadata) {
    const auto alignment =
        metadata.get_int(GGUF_KEY_GENERAL_ALIGNMENT).value_or(GGUF_DEFAULT_ALIGNMENT);
    check(alignment > 0 && alignment <= (1 << 20) && (alignment & (alignment - 1)) == 0,
          ErrorKind::bad_file, file, ": ", GGUF_KEY_GENERAL_ALIGNMENT, " is ", alignment,
          ", a power of two is expected; the file is broken");
    return static_cast<uint64_t>(alignment);
}

struct Entry {
    TensorInfo tensor;
    uint64_t offset;  // from the start of the data
};

Entry read_entry(const std::string& file, Cursor& cursor) {
    Entry entry;
    TensorInfo& tensor = entry.tensor;
    tensor.name = cursor.read_string("a tensor name");
    const std::string where = concat(file, ": tensor ", tensor.name);
    check_name(where, tensor.name);
    const auto n_dims = cursor.read<uint32_t>("a dimension count");
    check_dims(where, n_dims);
    for (uint32_t i = 0; i < n_dims; ++i) {
        append_dim_slowest(where, tensor.shape, cursor.read<int64_t>("a dimension"));
    }
    const auto number = cursor.read<int32_t>("a tensor type");
    const auto type = type_from_gguf(number);
    check(type.has_value(), ErrorKind::bad_file, where, " has the unknown type ", number,
          "; the file is broken, or its type was dropped from ggml or is newer than this program");
    tensor.type = *type;
    entry.offset = cursor.read<uint64_t>("a tensor offset");
    return entry;
}

// Sets the bytes of a tensor.
void place(const std::string& file, std::span<const std::byte> data, uint64_t alignment,
           Entry& entry) {
    TensorInfo& tensor = entry.tensor;
    const std::string where = concat(file, ": tensor ", tensor.name);
    const uint64_t size = checked_data_bytes(where, tensor.type, tensor.shape);
    check(entry.offset % alignment == 0, ErrorKind::bad_file, where, " starts at byte ",
          entry.offset, " of the data, which is no multiple of the alignment ", alignment,
          "; the file is broken");
    check(entry.offset <= data.size() && size <= data.size() - entry.offset, ErrorKind::bad_file,
          where, " needs ", size, " bytes at ", entry.offset, ", but the file holds ", data.size(),
          " bytes of data; it is truncated: download or convert it again");
    tensor.bytes = data.subspan(entry.offset, size);
}

}  // namespace

bool is_gguf(std::span<const std::byte> bytes) {
    return bytes.size() >= 4 && std::memcmp(bytes.data(), GGUF_MAGIC, 4) == 0;
}

TensorDirectory parse_gguf(const std::string& file, std::span<const std::byte> bytes) {
    check(is_gguf(bytes), ErrorKind::bad_file, file, ": does not start with ", GGUF_MAGIC,
          "; it is not a GGUF file");
    Cursor cursor(file, bytes);
    cursor.read<uint32_t>("the magic");
    const auto version = cursor.read<uint32_t>("the version");
    check(version == 2 || version == GGUF_VERSION, ErrorKind::bad_file, file, ": is GGUF version ",
          version, ", 2 and ", GGUF_VERSION,
          " are read; it is broken, big-endian, or needs another program");
    const auto n_tensors = cursor.read<uint64_t>("the tensor count");
    const auto n_keys = cursor.read<uint64_t>("the metadata count");
    // Smallest forms: an empty key with one byte, a nameless tensor without dimensions.
    cursor.require(n_keys, "the metadata count", 13);
    cursor.require(n_tensors, "the tensor count", 24);

    TensorDirectory directory;
    directory.metadata = read_metadata(file, cursor, n_keys);
    const uint64_t alignment = read_alignment(file, directory.metadata);

    std::vector<Entry> entries;
    std::unordered_set<std::string> names;
    for (uint64_t i = 0; i < n_tensors; ++i) {
        entries.push_back(read_entry(file, cursor));
        const std::string& name = entries.back().tensor.name;
        check(names.insert(name).second, ErrorKind::bad_file, file, ": tensor ", name,
              " appears twice; the file is broken");
    }
    const uint64_t data_start = (cursor.position() + alignment - 1) / alignment * alignment;
    const auto data = bytes.subspan(std::min<uint64_t>(data_start, bytes.size()));
    for (Entry& entry : entries) {
        place(file, data, alignment, entry);
        directory.tensors.push_back(std::move(entry.tensor));
    }
    check_no_overlap(file, directory.tensors);
    return directory;
}

}  // namespace flux2
