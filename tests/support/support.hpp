// What the tests share: temporary folders, errors as values, and builders of tensor files that know
// nothing of the code under test, so that they can build broken ones.
#pragma once

#include <flux2/error.hpp>
#include "formats/tensor_type.hpp"
#include "networks/tensor_list.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace flux2 {
struct TensorInfo;
}

namespace flux2::test {

using Bytes = std::vector<std::byte>;

// An empty folder of its own, removed with everything in it.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
    // The names of the files in it, sorted.
    std::vector<std::string> names() const;

  private:
    std::filesystem::path path_;
};

// A file under tests/fixtures, where the packed ones are unpacked.
std::filesystem::path fixture(std::string_view path);

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);
Bytes read_file(const std::filesystem::path& path);
std::string read_text(const std::filesystem::path& path);

// Whether a text has these words.
bool has(const std::string& text, std::string_view words);

Bytes bytes_of(std::string_view text);
template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
    Bytes bytes(values.size() * sizeof(T));
    if (!values.empty()) {
        std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    return bytes;
}

struct CaughtError {
    ErrorKind kind = ErrorKind::internal;
    std::string message;

    bool mentions(std::string_view text) const { return message.find(text) != std::string::npos; }
};

// Runs the function and returns the Error it throws. The test fails when it throws none, or
// anything else.
CaughtError error_of(const std::function<void()>& function);

// The largest single allocation while the object lives, on any thread.
class AllocationWatch {
  public:
    AllocationWatch();
    size_t largest() const;
};

// Checks that `parse` refuses a file as broken, without a single allocation of `most_bytes` or
// more, and that the message begins with the file's name and has these words.
void check_refused(std::string_view file, size_t most_bytes, const std::function<void()>& parse,
                   std::initializer_list<std::string_view> words);

// For work that nobody cancels.
inline const std::atomic<bool> kNoCancel = false;

// Checks what a file's directory says of a tensor.
void check_tensor(const TensorInfo& tensor, std::string_view name, TensorType type,
                  const Shape& shape, size_t n_bytes);

// While it lives, single allocations of more than so many bytes fail, on any thread.
class AllocationLimit {
  public:
    explicit AllocationLimit(size_t bytes);
    ~AllocationLimit();
    AllocationLimit(const AllocationLimit&) = delete;
    AllocationLimit& operator=(const AllocationLimit&) = delete;
};

// While it lives, calls a function before each allocation of least_bytes to most_bytes, on the
// thread that allocates, with how many there were before. By throwing std::bad_alloc the function
// makes the allocation fail; what it allocates itself does not count.
class AllocationHook {
  public:
    AllocationHook(size_t least_bytes, size_t most_bytes, std::function<void(size_t n)> function);
    ~AllocationHook();
    AllocationHook(const AllocationHook&) = delete;
    AllocationHook& operator=(const AllocationHook&) = delete;

    void pass(size_t bytes);

  private:
    size_t least_bytes_, most_bytes_;
    std::function<void(size_t n)> function_;
    std::atomic<size_t> n_ = 0;
};

// Little-endian values one after another, as both formats have them.
class ByteWriter {
  public:
    template <typename T>
    ByteWriter& put(T value) {
        static_assert(std::is_arithmetic_v<T> && std::endian::native == std::endian::little);
        return raw(std::as_bytes(std::span(&value, 1)));
    }
    ByteWriter& u32(uint32_t value) { return put(value); }
    ByteWriter& u64(uint64_t value) { return put(value); }
    // GGUF's form: the length, then the bytes.
    ByteWriter& string(std::string_view text);
    ByteWriter& raw(std::span<const std::byte> bytes);
    ByteWriter& raw(std::string_view text);
    // Zeros up to a multiple of the alignment.
    ByteWriter& pad(size_t alignment);

    const Bytes& bytes() const { return bytes_; }

  private:
    Bytes bytes_;
};

// A safetensors file from its JSON header, right or wrong, and its data.
Bytes safetensors(std::string_view header, std::span<const std::byte> data = {});

// A tensor for the builders below; the shape is in ggml order, fastest first.
struct TestTensor {
    std::string name;
    std::vector<int64_t> shape;
    Bytes data;
    TensorType type = TensorType::f32;
};

// Values counting up from `first`.
TestTensor counting_tensor(const std::string& name, const std::vector<int64_t>& shape,
                           float first = 0.0f);

// A tensor that a network has, with these bytes.
TestTensor tensor_of(const ExpectedTensor& expected, Bytes data, TensorType type = TensorType::f32);

// A transformer whose rows fit every type: hidden 256, random values of both signs.
std::vector<TestTensor> wide_transformer(int64_t n_single);

// The tensors of a model file with their bytes, to be changed and written again.
std::vector<TestTensor> tensors_of(const std::filesystem::path& file);

// A tensor of the autoencoder as diffusers has it, written from diffusers' conversion script.
TestTensor as_diffusers_vae(const TestTensor& tensor);

// A correct safetensors file of floats, F8, I64, I8 and U8 tensors; `metadata` is what stands under
// __metadata__, a JSON object.
Bytes safetensors_of(const std::vector<TestTensor>& tensors, std::string_view metadata = {});

// A correct GGUF file without metadata, or with nothing but general.architecture.
Bytes gguf_of(const std::vector<TestTensor>& tensors, std::string_view architecture = {});

// The transformer of the klein fixture with a guidance input, as dev has it, which embeds as the
// time does.
void write_dev_like(const std::filesystem::path& file);

}  // namespace flux2::test
