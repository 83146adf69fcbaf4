#include "merge.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/parse_number.hpp"

#include <memory>
#include <optional>
#include <span>

namespace flux2::convert {
namespace {

std::optional<float> number_in(const std::string& text) {
    try {
        return parse_float("", text);
    } catch (const Error&) {
        return std::nullopt;
    }
}

}  // namespace

Adapter parse_adapter(const std::string& text) {
    Adapter adapter;
    adapter.file = text;
    const size_t colon = text.rfind(':');
    if (colon != std::string::npos && !file_exists(text)) {
        if (const std::optional<float> strength = number_in(text.substr(colon + 1))) {
            adapter.file = text.substr(0, colon);
            adapter.strength = *strength;
        }
    }
    check(!adapter.file.empty(), ErrorKind::bad_argument, "--lora '", text,
          "' names no file; use FILE or FILE:STRENGTH");
    return adapter;
}

std::vector<UsedAdapter> open_adapters(const std::vector<std::string>& texts) {
    std::vector<UsedAdapter> adapters;
    for (const std::string& text : texts) {
        const Adapter use = parse_adapter(text);
        adapters.push_back({std::make_shared<const AdapterFile>(AdapterFile::open(use.file)), use});
    }
    return adapters;
}

std::string to_string(const UsedAdapter& adapter) {
    return concat(adapter.use.file.filename().string(), ":", adapter.use.strength);
}

MergedTensor::MergedTensor(const ModelTensor& source, const AdapterSet& adapters)
    : values_(static_cast<size_t>(source.shape.elements())) {
    source.read_f32(0, values_);
    adapters.apply(source.name, values_);
    tensor_ = {source.name,
               source.shape,
               {{.type = TensorType::f32,
                 .n_elements = source.shape.elements(),
                 .bytes = std::as_bytes(std::span(values_))}}};
}

}  // namespace flux2::convert
