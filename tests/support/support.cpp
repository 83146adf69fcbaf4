#include "support/support.hpp"

#include "formats/tensor_source.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

namespace flux2::test {
namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
    std::random_device random;
    do {
        path_ = fs::temp_directory_path() / ("flux2-tests-" + std::to_string(random()));
    } while (!fs::create_directory(path_));
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

fs::path fixture(std::string_view path) {
    return fs::path(recorded_folder()) / path;
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    REQUIRE_MESSAGE(file.good(), "cannot write " << path.string());
}

void write_file(const fs::path& path, std::string_view text) {
    write_file(path, std::as_bytes(std::span(text)));
}

Bytes read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE_MESSAGE(file.good(), "cannot read " << path.string());
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    return bytes_of(text);
}

std::string read_text(const fs::path& path) {
    const Bytes bytes = read_file(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool has(const std::string& text, std::string_view words) {
    return text.find(words) != std::string::npos;
}

Bytes bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return Bytes(bytes.begin(), bytes.end());
}

CaughtError error_of(const std::function<void()>& function) {
    try {
        function();
    } catch (const Error& error) {
        return {error.kind(), error.what()};
    } catch (const std::exception& other) {
        FAIL("threw something other than an Error: " << std::string(other.what()));
    }
    FAIL("threw nothing");
    return {};
}

void check_refused(std::string_view file, size_t most_bytes, const std::function<void()>& parse,
                   std::initializer_list<std::string_view> words) {
    const AllocationWatch watch;
    const auto error = error_of(parse);
    CHECK(watch.largest() < most_bytes);
    CHECK(error.kind == ErrorKind::bad_file);
    CHECK(error.message.starts_with(file));
    for (const std::string_view word : words) {
        CHECK_MESSAGE(error.mentions(word), error.message << " should mention " << word);
    }
}

void check_tensor(const TensorInfo& tensor, std::string_view name, TensorType type,
                  const Shape& shape, size_t n_bytes) {
    CHECK(tensor.name == name);
    CHECK(tensor.type == type);
    CHECK(tensor.shape.n_dims == shape.n_dims);
    CHECK(tensor.shape.ne == shape.ne);
    CHECK(tensor.bytes.size() == n_bytes);
}

ByteWriter& ByteWriter::string(std::string_view text) {
    return u64(text.size()).raw(text);
}

ByteWriter& ByteWriter::raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
}

ByteWriter& ByteWriter::raw(std::string_view text) {
    return raw(std::as_bytes(std::span(text)));
}

ByteWriter& ByteWriter::pad(size_t alignment) {
    while (bytes_.size() % alignment != 0) {
        bytes_.push_back(std::byte{0});
    }
    return *this;
}

Bytes safetensors(std::string_view header, std::span<const std::byte> data) {
    return ByteWriter().u64(header.size()).raw(header).raw(data).bytes();
}

TestTensor counting_tensor(const std::string& name, const std::vector<int64_t>& shape,
                           float first) {
    int64_t n = 1;
    for (const int64_t size : shape) {
        n *= size;
    }
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) {
        values.push_back(first + static_cast<float>(i));
    }
    return {.name = name, .shape = shape, .data = bytes_of(values)};
}

TestTensor tensor_of(const ExpectedTensor& expected, Bytes data, TensorType type) {
    const auto begin = expected.shape.ne.begin();
    return {expected.name, {begin, begin + expected.shape.n_dims}, std::move(data), type};
}

std::vector<TestTensor> wide_transformer(int64_t n_single) {
    const TransformerSizes sizes{.hidden = 256,
                                 .head_dim = 64,
                                 .mlp = 256,
                                 .text_width = 256,
                                 .channels = 128,
                                 .n_double = 1,
                                 .n_single = n_single,
                                 .guidance = false};
    std::vector<TestTensor> tensors;
    uint32_t state = 1;
    for (const ExpectedTensor& expected : tensor_list(sizes)) {
        std::vector<float> values(static_cast<size_t>(expected.shape.elements()));
        for (float& value : values) {
            state = state * 1664525u + 1013904223u;
            value = static_cast<float>(static_cast<int32_t>(state)) / 2e10f;
        }
        tensors.push_back(tensor_of(expected, bytes_of(values)));
    }
    return tensors;
}

std::vector<TestTensor> tensors_of(const std::filesystem::path& file) {
    std::vector<TestTensor> tensors;
    const TensorSource source = TensorSource::open(file);
    for (const TensorInfo& tensor : source.tensors()) {
        const auto n_dims = static_cast<size_t>(tensor.shape.n_dims);
        tensors.push_back({tensor.name,
                           {tensor.shape.ne.begin(), tensor.shape.ne.begin() + n_dims},
                           {tensor.bytes.begin(), tensor.bytes.end()},
                           tensor.type});
    }
    return tensors;
}

Bytes safetensors_of(const std::vector<TestTensor>& tensors, std::string_view metadata) {
    std::string header = metadata.empty() ? "{" : "{\"__metadata__\":" + std::string(metadata);
    Bytes data;
    for (const TestTensor& tensor : tensors) {
        const char* dtype = tensor.type == TensorType::f16       ? "F16"
                            : tensor.type == TensorType::bf16    ? "BF16"
                            : tensor.type == TensorType::i64     ? "I64"
                            : tensor.type == TensorType::i8      ? "I8"
                            : tensor.type == TensorType::u8      ? "U8"
                            : tensor.type == TensorType::f8_e4m3 ? "F8_E4M3"
                            : tensor.type == TensorType::f8_e5m2 ? "F8_E5M2"
                            : tensor.type == TensorType::f8_e8m0 ? "F8_E8M0"
                                                                 : "F32";
        std::string sizes;
        for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
            sizes += sizes.empty() ? "" : ",";
            sizes += std::to_string(*size);
        }
        const size_t begin = data.size();
        data.insert(data.end(), tensor.data.begin(), tensor.data.end());
        header += header.size() > 1 ? "," : "";
        header += "\"" + tensor.name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + sizes +
                  "],\"data_offsets\":[" + std::to_string(begin) + "," +
                  std::to_string(data.size()) + "]}";
    }
    return safetensors(header + "}", data);
}

Bytes gguf_of(const std::vector<TestTensor>& tensors, std::string_view architecture) {
    constexpr size_t kAlignment = 32;
    constexpr uint32_t kString = 8;
    ByteWriter file;
    file.raw("GGUF").u32(3).u64(tensors.size()).u64(architecture.empty() ? 0 : 1);
    if (!architecture.empty()) {
        file.string("general.architecture").u32(kString).string(architecture);
    }
    ByteWriter data;
    for (const TestTensor& tensor : tensors) {
        file.string(tensor.name).u32(static_cast<uint32_t>(tensor.shape.size()));
        for (const int64_t size : tensor.shape) {
            file.put(size);
        }
        file.put(static_cast<int32_t>(tensor.type)).u64(data.bytes().size());
        data.raw(tensor.data).pad(kAlignment);
    }
    return file.pad(kAlignment).raw(data.bytes()).bytes();
}

TestTensor as_diffusers_vae(const TestTensor& tensor) {
    std::vector<std::pair<std::string, std::string>> renames = {
        {"encoder.quant_conv", "quant_conv"},
        {"decoder.post_quant_conv", "post_quant_conv"},
        {".norm_out", ".conv_norm_out"},
        {"mid.block_1", "mid_block.resnets.0"},
        {"mid.block_2", "mid_block.resnets.1"},
        {"mid.attn_1.norm", "mid_block.attentions.0.group_norm"},
        {"mid.attn_1.proj_out", "mid_block.attentions.0.to_out.0"},
        {"mid.attn_1.", "mid_block.attentions.0.to_"},
        {"encoder.down.", "encoder.down_blocks."},
        {".block.", ".resnets."},
        {".nin_shortcut.", ".conv_shortcut."},
        {".downsample.", ".downsamplers.0."},
        {".upsample.", ".upsamplers.0."},
    };
    for (int level = 0; level < 4; ++level) {
        renames.emplace_back("decoder.up." + std::to_string(level) + ".",
                             "decoder.up_blocks." + std::to_string(3 - level) + ".");
    }
    TestTensor renamed = tensor;
    for (const auto& [from, to] : renames) {
        const size_t at = renamed.name.find(from);
        if (at != std::string::npos) {
            renamed.name.replace(at, from.size(), to);
        }
    }
    // Attention is four 1x1 convolutions in the original, four matrices in diffusers.
    if (tensor.name.find("attn_1.") != std::string::npos && tensor.shape.size() == 4) {
        renamed.shape = {tensor.shape[2], tensor.shape[3]};
    }
    return renamed;
}

void write_dev_like(const std::filesystem::path& file) {
    std::vector<TestTensor> tensors = tensors_of(fixture("klein/flux2.safetensors"));
    for (size_t i = 0, n = tensors.size(); i < n; ++i) {
        if (tensors[i].name.starts_with("time_in.")) {
            TestTensor copy = tensors[i];
            copy.name.replace(0, 4, "guidance");
            tensors.push_back(copy);
        }
    }
    write_file(file, safetensors_of(tensors));
}

}  // namespace flux2::test
