#include "formats/gguf_writer.hpp"

#include "base/check.hpp"

#include <ggml-cpp.h>
#include <gguf.h>

#include <type_traits>
#include <utility>

namespace flux2 {
namespace {

template <typename T>
constexpr gguf_type kGgufType = GGUF_TYPE_COUNT;
template <>
constexpr gguf_type kGgufType<uint8_t> = GGUF_TYPE_UINT8;
template <>
constexpr gguf_type kGgufType<int8_t> = GGUF_TYPE_INT8;
template <>
constexpr gguf_type kGgufType<uint16_t> = GGUF_TYPE_UINT16;
template <>
constexpr gguf_type kGgufType<int16_t> = GGUF_TYPE_INT16;
template <>
constexpr gguf_type kGgufType<uint32_t> = GGUF_TYPE_UINT32;
template <>
constexpr gguf_type kGgufType<int32_t> = GGUF_TYPE_INT32;
template <>
constexpr gguf_type kGgufType<float> = GGUF_TYPE_FLOAT32;
template <>
constexpr gguf_type kGgufType<uint64_t> = GGUF_TYPE_UINT64;
template <>
constexpr gguf_type kGgufType<int64_t> = GGUF_TYPE_INT64;
template <>
constexpr gguf_type kGgufType<double> = GGUF_TYPE_FLOAT64;

struct SetValue {
    gguf_context* gguf;
    const char* key;

    void operator()(uint8_t v) const { gguf_set_val_u8(gguf, key, v); }
    void operator()(int8_t v) const { gguf_set_val_i8(gguf, key, v); }
    void operator()(uint16_t v) const { gguf_set_val_u16(gguf, key, v); }
    void operator()(int16_t v) const { gguf_set_val_i16(gguf, key, v); }
    void operator()(uint32_t v) const { gguf_set_val_u32(gguf, key, v); }
    void operator()(int32_t v) const { gguf_set_val_i32(gguf, key, v); }
    void operator()(float v) const { gguf_set_val_f32(gguf, key, v); }
    void operator()(bool v) const { gguf_set_val_bool(gguf, key, v); }
    void operator()(uint64_t v) const { gguf_set_val_u64(gguf, key, v); }
    void operator()(int64_t v) const { gguf_set_val_i64(gguf, key, v); }
    void operator()(double v) const { gguf_set_val_f64(gguf, key, v); }
    void operator()(const std::string& v) const { gguf_set_val_str(gguf, key, v.c_str()); }

    void operator()(const std::vector<std::string>& v) const {
        std::vector<const char*> strings;
        for (const std::string& text : v) {
            strings.push_back(text.c_str());
        }
        gguf_set_arr_str(gguf, key, strings.data(), strings.size());
    }
    void operator()(const std::vector<bool>& v) const {
        const std::vector<int8_t> flags(v.begin(), v.end());
        gguf_set_arr_data(gguf, key, GGUF_TYPE_BOOL, flags.data(), flags.size());
    }
    template <typename T>
    void operator()(const std::vector<T>& v) const {
        gguf_set_arr_data(gguf, key, kGgufType<T>, v.data(), v.size());
    }
};

}  // namespace

GgufLayout lay_out_gguf(const Metadata& metadata, const std::vector<GgufTensor>& tensors) {
    check(!metadata.contains(GGUF_KEY_GENERAL_ALIGNMENT), ErrorKind::internal,
          GGUF_KEY_GENERAL_ALIGNMENT, " is ours to choose: ggml's default");
    const gguf_context_ptr gguf(gguf_init_empty());
    for (const auto& [key, value] : metadata.entries()) {
        std::visit(SetValue{gguf.get(), key.c_str()}, value);
    }
    const ggml_context_ptr ggml(
        ggml_init({.mem_size = (tensors.size() + 1) * ggml_tensor_overhead(),
                   .mem_buffer = nullptr,
                   .no_alloc = true}));
    for (const GgufTensor& tensor : tensors) {
        ggml_tensor* t = ggml_new_tensor(ggml.get(), static_cast<ggml_type>(tensor.type),
                                         Shape::kMaxDims, tensor.shape.ne.data());
        ggml_set_name(t, tensor.name.c_str());
        gguf_add_tensor(gguf.get(), t);
    }
    GgufLayout layout;
    layout.header.resize(gguf_get_meta_size(gguf.get()));
    gguf_get_meta_data(gguf.get(), layout.header.data());
    layout.file_bytes = layout.header.size();
    const uint64_t alignment = gguf_get_alignment(gguf.get());
    for (size_t i = 0; i < tensors.size(); ++i) {
        const auto id = static_cast<int64_t>(i);
        layout.tensor_offsets.push_back(layout.header.size() +
                                        gguf_get_tensor_offset(gguf.get(), id));
        const uint64_t end = layout.tensor_offsets.back() + gguf_get_tensor_size(gguf.get(), id);
        layout.file_bytes = (end + alignment - 1) / alignment * alignment;
    }
    return layout;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const Metadata& metadata,
                       std::vector<GgufTensor> tensors)
    : tensors_(std::move(tensors)),
      layout_(lay_out_gguf(metadata, tensors_)),
      file_((check_free_space(path, layout_.file_bytes), path)) {}

void GgufWriter::write(size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
    const GgufTensor& t = tensors_.at(tensor);
    const uint64_t size = data_bytes(t.type, t.shape.elements());
    check(offset <= size && bytes.size() <= size - offset, ErrorKind::internal,
          "writing past the end of tensor ", t.name);
    file_.write_at(layout_.tensor_offsets[tensor] + offset, bytes);
}

void GgufWriter::finish(const Metadata& metadata) {
    const GgufLayout final_layout = lay_out_gguf(metadata, tensors_);
    check(final_layout.tensor_offsets == layout_.tensor_offsets, ErrorKind::internal,
          "the metadata changed its size while the file was written");
    file_.write_at(0, final_layout.header);
    // The last tensor is padded like the others: readers may expect a multiple of the alignment.
    file_.extend_to(layout_.file_bytes);
    file_.commit();
}

}  // namespace flux2
