#include "merge.hpp"

#include "base/check.hpp"
#include "base/file_and_strength.hpp"

#include <memory>
#include <optional>
#include <span>

namespace flux2::convert {
std::vector<UsedAdapter> open_adapters(const std::vector<std::string>& texts) {
    std::vector<UsedAdapter> adapters;
    for (const std::string& text : texts) {
        const FileAndStrength parsed = parse_file_and_strength("--lora", text);
        Adapter use;
        use.file = parsed.file;
        use.strength = parsed.strength;
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
