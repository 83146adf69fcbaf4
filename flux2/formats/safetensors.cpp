#include "formats/safetensors.hpp"

#include "base/check.hpp"
#include "base/file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

namespace flux2 {
namespace {

constexpr size_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMaxIndexBytes = 100'000'000;

// Receives the JSON header as parser events, so that depth, duplicates and types are checked while
// parsing and no JSON tree is built.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
  public:
    HeaderReader(const std::string& file, std::span<const std::byte> data)
        : file_(file), data_(data), where_(file) {
        directory_.metadata = Metadata(file);
    }

    TensorDirectory take() { return std::move(directory_); }

    bool start_object(size_t) override {
        ++depth_;
        if (depth_ == 2 && !in_metadata_) {
            entry_ = {};
            entry_fields_.clear();
            field_.clear();
        }
        return check_place(depth_ <= 2 && !in_array_, "an object");
    }

    bool end_object() override {
        if (depth_ == 2 && !in_metadata_) {
            finish_entry();
        }
        --depth_;
        in_metadata_ = false;
        return true;
    }

    bool key(std::string& name) override {
        if (depth_ == 1) {
            check(names_.insert(name).second, ErrorKind::bad_file, file_, ": ", name,
                  " appears twice in the header; the file is broken");
            in_metadata_ = name == "__metadata__";
            top_key_ = name;
            where_ = file_ + ": tensor " + name;
            if (!in_metadata_) {
                check_name(where_, name);
            }
        } else if (in_metadata_) {
            check(!directory_.metadata.contains(name), ErrorKind::bad_file, file_,
                  ": metadata key ", name, " appears twice in the header; the file is broken");
            field_ = name;
        } else {
            check(name == "dtype" || name == "shape" || name == "data_offsets", ErrorKind::bad_file,
                  where_, " has an unknown field ", name,
                  "; dtype, shape and data_offsets are expected");
            check(entry_fields_.insert(name).second, ErrorKind::bad_file, where_,
                  " has two fields ", name, "; the file is broken");
            field_ = name;
        }
        return true;
    }

    bool start_array(size_t) override {
        const bool expected = depth_ == 2 && !in_metadata_ && !in_array_ &&
                              (field_ == "shape" || field_ == "data_offsets");
        in_array_ = true;
        return check_place(expected, "an array");
    }

    bool end_array() override {
        in_array_ = false;
        return true;
    }

    bool string(std::string& text) override {
        if (depth_ == 2 && in_metadata_) {
            directory_.metadata.set(field_, std::move(text));
            return true;
        }
        check_place(depth_ == 2 && field_ == "dtype" && !in_array_, "a string");
        entry_.type = type_from_safetensors(text);
        check(entry_.type.has_value(), ErrorKind::bad_file, where_, " has the unknown type ", text,
              "; this version reads F64 to F8 floats, integers and BOOL");
        return true;
    }

    bool number_unsigned(uint64_t number) override {
        check_place(in_array_, "a number");
        if (field_ == "shape") {
            check_dims(where_, entry_.sizes.size() + 1);
            check(number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
                  ErrorKind::bad_file, where_, " has a dimension of ", number,
                  "; the file is broken");
            entry_.sizes.push_back(static_cast<int64_t>(number));
        } else {
            check(entry_.offsets.size() < 2, ErrorKind::bad_file, where_,
                  " has more than two data offsets; the file is broken");
            entry_.offsets.push_back(number);
        }
        return true;
    }

    bool number_integer(int64_t number) override {
        fail(ErrorKind::bad_file, where_, " has the number ", number,
             " where only zero and above make sense; the file is broken");
    }
    bool number_float(double, const std::string& text) override {
        fail(ErrorKind::bad_file, where_, " has the number ", text,
             " where an integer is expected; the file is broken");
    }
    bool null() override { return check_place(false, "null"); }
    bool boolean(bool) override { return check_place(false, "a boolean"); }
    bool binary(binary_t&) override { return check_place(false, "binary data"); }

    bool parse_error(size_t position, const std::string&,
                     const nlohmann::json::exception&) override {
        fail(ErrorKind::bad_file, file_, ": the header is not valid JSON at byte ", position,
             "; the file is broken or not a safetensors file");
    }

  private:
    struct Entry {
        std::optional<TensorType> type;
        std::vector<int64_t> sizes;  // slowest first, as the file has them
        std::vector<uint64_t> offsets;
    };

    bool check_place(bool expected, const char* what) const {
        check(expected, ErrorKind::bad_file, file_, ": the header has ", what, " under ",
              top_key_.empty() ? "its top" : top_key_,
              " where none is expected; the file is broken or not a safetensors file");
        return true;
    }

    void finish_entry() {
        check(entry_fields_.size() == 3 && entry_.offsets.size() == 2, ErrorKind::bad_file, where_,
              " lacks dtype, shape or data_offsets; the file is broken");
        TensorInfo tensor{.name = top_key_, .type = *entry_.type, .shape = {}, .bytes = {}};
        for (size_t i = entry_.sizes.size(); i-- > 0;) {
            append_dim_slowest(where_, tensor.shape, entry_.sizes[i]);
        }
        const uint64_t begin = entry_.offsets[0];
        const uint64_t end = entry_.offsets[1];
        check(begin <= end && end <= data_.size(), ErrorKind::bad_file, where_, " lies at bytes ",
              begin, " to ", end, ", but the file holds ", data_.size(),
              " bytes of data; it is truncated: download it again");
        const uint64_t expected = checked_data_bytes(where_, tensor.type, tensor.shape);
        if (end - begin != expected) {
            fail(ErrorKind::bad_file, where_, " takes ", end - begin, " bytes, but its type ",
                 type_name(tensor.type), " and shape ", to_string(tensor.shape), " need ", expected,
                 "; the file is broken");
        }
        tensor.bytes = data_.subspan(begin, expected);
        directory_.tensors.push_back(std::move(tensor));
    }

    const std::string& file_;
    std::span<const std::byte> data_;
    TensorDirectory directory_;
    std::unordered_set<std::string> names_;
    std::unordered_set<std::string> entry_fields_;
    std::string top_key_;
    std::string where_;  // for errors; put together once per tensor
    std::string field_;
    Entry entry_;
    int depth_ = 0;
    bool in_metadata_ = false;
    bool in_array_ = false;
};

// Collects the weight_map of an index; everything else in it is ignored.
class IndexReader : public nlohmann::json_sax<nlohmann::json> {
  public:
    explicit IndexReader(std::string file) : file_(std::move(file)) {}

    std::map<std::string, std::string> take() { return std::move(shards_); }

    bool start_object(size_t) override {
        check_scalar();
        check(++depth_ <= kMaxDepth, ErrorKind::bad_file, file_,
              ": is nested too deeply for an index; the file is broken");
        in_map_ = in_map_ || (depth_ == 2 && key_ == "weight_map");
        return true;
    }
    bool end_object() override {
        --depth_;
        in_map_ = in_map_ && depth_ >= 2;
        return true;
    }
    bool key(std::string& name) override {
        key_ = name;
        return true;
    }
    bool string(std::string& shard) override {
        if (!in_map_) {
            return true;
        }
        check(shard.find_first_of("/\\:") == std::string::npos && !shard.empty() &&
                  shard.front() != '.',
              ErrorKind::bad_file, file_, ": tensor ", key_, " is assigned to ", shard,
              "; shards must be plain file names beside the index");
        check(shards_.emplace(key_, shard).second, ErrorKind::bad_file, file_, ": tensor ", key_,
              " appears twice in the index; the file is broken");
        return true;
    }
    bool start_array(size_t) override { return check_scalar(); }
    bool end_array() override { return true; }
    bool null() override { return check_scalar(); }
    bool boolean(bool) override { return check_scalar(); }
    bool number_integer(int64_t) override { return check_scalar(); }
    bool number_unsigned(uint64_t) override { return check_scalar(); }
    bool number_float(double, const std::string&) override { return check_scalar(); }
    bool binary(binary_t&) override { return check_scalar(); }
    bool parse_error(size_t position, const std::string&,
                     const nlohmann::json::exception&) override {
        fail(ErrorKind::bad_file, file_, ": is not valid JSON at byte ", position,
             "; download it again");
    }

  private:
    static constexpr int kMaxDepth = 8;

    bool check_scalar() const {
        check(!in_map_, ErrorKind::bad_file, file_, ": tensor ", key_,
              " has no file name in the index; the file is broken");
        return true;
    }

    std::string file_;
    std::map<std::string, std::string> shards_;
    std::string key_;
    int depth_ = 0;
    bool in_map_ = false;
};

// The header of a file to be written, and the data that follow it.
struct Layout {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    std::vector<std::span<const std::byte>> data;
    uint64_t data_bytes = 0;

    void add(const std::string& name, TensorType type, const std::vector<int64_t>& shape,
             std::span<const std::byte> bytes) {
        const uint64_t begin = data_bytes;
        data_bytes += bytes.size();
        header[name] = {
            {"dtype", type_name(type)}, {"shape", shape}, {"data_offsets", {begin, data_bytes}}};
        data.push_back(bytes);
    }

    void write(const std::filesystem::path& path) const {
        // Names of files may not be UTF-8.
        std::string text =
            header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
        text.resize((text.size() + 7) / 8 * 8, ' ');
        const uint64_t header_bytes = text.size();
        check_free_space(path, sizeof(header_bytes) + header_bytes + data_bytes);
        AtomicFile file(path);
        file.write_at(0, std::as_bytes(std::span(&header_bytes, 1)));
        file.write_at(sizeof(header_bytes), std::as_bytes(std::span(text)));
        uint64_t at = sizeof(header_bytes) + header_bytes;
        for (const std::span<const std::byte> bytes : data) {
            file.write_at(at, bytes);
            at += bytes.size();
        }
        file.commit();
    }
};

}  // namespace

TensorDirectory parse_safetensors(const std::string& file, std::span<const std::byte> bytes) {
    uint64_t header_bytes = 0;
    check(bytes.size() >= sizeof(header_bytes), ErrorKind::bad_file, file, ": is ", bytes.size(),
          " bytes long, too short for a safetensors file; download it again");
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    check(header_bytes <= kMaxHeaderBytes && header_bytes <= bytes.size() - sizeof(header_bytes),
          ErrorKind::bad_file, file, ": claims a header of ", header_bytes, " bytes in a file of ",
          bytes.size(), "; it is truncated or not a safetensors file");
    const auto header = bytes.subspan(sizeof(header_bytes), header_bytes);
    // The JSON parser takes a zero byte for the end of its input.
    check(std::find(header.begin(), header.end(), std::byte{0}) == header.end(),
          ErrorKind::bad_file, file,
          ": the header holds a zero byte, which is not valid JSON; the "
          "file is broken or not a safetensors file");
    HeaderReader reader(file, bytes.subspan(sizeof(header_bytes) + header_bytes));
    const auto* text = reinterpret_cast<const char*>(header.data());
    nlohmann::json::sax_parse(text, text + header.size(), &reader);
    TensorDirectory directory = reader.take();
    check_no_overlap(file, directory.tensors);
    return directory;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<FloatTensor>& tensors) {
    Layout layout;
    for (const FloatTensor& tensor : tensors) {
        layout.add(tensor.name, TensorType::f32, tensor.shape,
                   std::as_bytes(std::span(tensor.values)));
    }
    layout.write(path);
}

void write_safetensors(const std::filesystem::path& path, const std::vector<EncodedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
    std::vector<TensorBytes> borrowed;
    for (const EncodedTensor& tensor : tensors) {
        borrowed.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes});
    }
    write_safetensors(path, borrowed, metadata);
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorBytes>& tensors,
                       const std::map<std::string, std::string>& metadata) {
    Layout layout;
    if (!metadata.empty()) {
        layout.header["__metadata__"] = metadata;
    }
    for (const TensorBytes& tensor : tensors) {
        layout.add(tensor.name, tensor.type, tensor.shape, tensor.bytes);
    }
    layout.write(path);
}

std::map<std::string, std::string> read_shard_index(const std::filesystem::path& index) {
    const std::string text = read_text_file(index, kMaxIndexBytes);
    IndexReader reader(index.string());
    nlohmann::json::sax_parse(text, &reader);
    auto shards = reader.take();
    check(!shards.empty(), ErrorKind::bad_file, index.string(),
          ": has no weight_map; it is not the index of a sharded checkpoint");
    return shards;
}

}  // namespace flux2
