#include "checkpoints/weight_schemes.hpp"

#include "base/check.hpp"
#include "base/log.hpp"
#include "base/utf8.hpp"
#include "checkpoints/tensor_names.hpp"
#include "formats/json_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kMarker = "scaled_fp8";  // older ComfyUI; its values do not matter here

// Names of a layer's scales: BFL, ComfyUI and ModelOpt; older ComfyUI and musubi; Qwen3-FP8, whose
// scale is a factor too, despite its name.
constexpr std::array<std::string_view, 3> kScales = {".weight_scale", ".scale_weight",
                                                     ".weight_scale_inv"};
constexpr std::string_view kTensorScale = ".weight_scale_2";
constexpr std::string_view kColumnScale = ".pre_quant_scale";
constexpr std::string_view kDescription = ".comfy_quant";
// Scales of activations: only needed for multiplies in FP8.
constexpr std::array<std::string_view, 2> kInputScales = {".input_scale", ".scale_input"};

// Unsupported storage schemes, recognised by a text in tensor names.
struct Foreign {
    std::string_view mark;
    std::string_view what;
};
constexpr std::array kForeign = {
    Foreign{".quant_state.bitsandbytes", "bitsandbytes"},
    Foreign{".weight_packed", "compressed-tensors"},
    Foreign{".qweight", "GPTQ, AWQ or Nunchaku"},
};

constexpr const char* kUseAnother = "use the bf16, FP8, NVFP4 or GGUF file of the model";
constexpr const char* kDamaged = "the file is damaged: download it again";

bool is_marker(std::string_view name) {
    return name == kMarker || name.ends_with(".scaled_fp8");
}

bool is_float8(TensorType type) {
    return type == TensorType::f8_e4m3 || type == TensorType::f8_e5m2;
}

int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// Slowest first as PyTorch has them, without ones at the end: [out, 1] -> [out].
std::vector<int64_t> sizes_of(const Shape& shape) {
    std::vector<int64_t> sizes(shape.ne.begin(), shape.ne.begin() + shape.n_dims);
    std::reverse(sizes.begin(), sizes.end());
    while (!sizes.empty() && sizes.back() == 1) {
        sizes.pop_back();
    }
    return sizes;
}

// Whether the weights were rotated, which would have to be undone.
bool is_rotated(const nlohmann::json& description) {
    for (const auto& [key, value] : description.items()) {
        const bool off = value.is_null() || value == false || value == 0;
        if (key.find("convrot") != std::string::npos && !off) {
            return true;
        }
    }
    return false;
}

}  // namespace

bool describes_weights(std::string_view name) {
    const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
    return is_marker(name) || std::any_of(kScales.begin(), kScales.end(), ends) ||
           std::any_of(kInputScales.begin(), kInputScales.end(), ends) || ends(kTensorScale) ||
           ends(kColumnScale) || ends(kDescription);
}

WeightSchemes::WeightSchemes(const TensorSource& source, Naming naming,
                             const std::vector<const TensorInfo*>& tensors)
    : source_(source), naming_(naming) {
    for (const TensorInfo* tensor : tensors) {
        for (const Foreign& foreign : kForeign) {
            check(tensor->name.find(foreign.mark) == std::string::npos, ErrorKind::unsupported,
                  file(), ": is quantised by ", foreign.what, " (", tensor->name,
                  "), which this version does not read; ", kUseAnother);
        }
        const bool gguf_scale =
            source_.format() == FileFormat::gguf &&
            (describes_weights(tensor->name) ||
             (tensor->name.ends_with(".scale") &&
              attached(tensor->name.substr(0, tensor->name.rfind('.')), kWeight) != nullptr));
        check(!gguf_scale, ErrorKind::unsupported, file(),
              ": is a GGUF whose weights have separate scales (", tensor->name,
              "), which this version does not read; use another type of it");
    }
    read_layer_formats();
    survey(tensors);
}

// `_quantization_metadata` of ComfyUI: {"layers": {"X": {"format": ...}}}.
void WeightSchemes::read_layer_formats() {
    const auto text = source_.metadata().get_string("_quantization_metadata");
    if (!text) {
        return;
    }
    const nlohmann::json json = parse_json(*text);
    const bool sound = json.is_object() && json.contains("layers") && json["layers"].is_object();
    check(sound, ErrorKind::bad_file, file(),
          ": its _quantization_metadata is no JSON object with layers; ", kDamaged);
    for (const auto& [layer, description] : json["layers"].items()) {
        formats_[layer] = description.dump();
    }
}

void WeightSchemes::survey(const std::vector<const TensorInfo*>& tensors) {
    for (const TensorInfo* tensor : tensors) {
        marked_scaled_ = marked_scaled_ || is_marker(tensor->name);
        if (!is_float8(tensor->type) || !tensor->name.ends_with(kWeight)) {
            continue;
        }
        const std::string layer = tensor->name.substr(0, tensor->name.size() - kWeight.size());
        if (const TensorInfo* scales = find_scales(layer)) {
            ++n_with_scale_;
            spelling_ = scales->name.substr(layer.size());
        }
    }
}

const TensorInfo* WeightSchemes::attached(const std::string& layer, std::string_view suffix) const {
    return source_.find(layer + std::string(suffix));
}

const TensorInfo* WeightSchemes::find_scales(const std::string& layer) const {
    for (const std::string_view spelling : kScales) {
        if (const TensorInfo* found = attached(layer, spelling)) {
            return found;
        }
    }
    return nullptr;
}

std::string WeightSchemes::format_of(const std::string& layer) const {
    if (const TensorInfo* tensor = attached(layer, kDescription)) {
        const auto* text = reinterpret_cast<const char*>(tensor->bytes.data());
        return comfy_format(layer, std::string(text, tensor->bytes.size()));
    }
    for (const std::string& name : {layer, std::string(strip_prefix(layer))}) {
        if (const auto found = formats_.find(name); found != formats_.end()) {
            return comfy_format(layer, found->second);
        }
    }
    return {};
}

std::string WeightSchemes::comfy_format(const std::string& layer, const std::string& text) const {
    constexpr std::array<std::string_view, 5> kKnown = {"float8_e4m3fn", "float8_e5m2", "mxfp8",
                                                        "nvfp4", "int8_tensorwise"};
    const nlohmann::json json = parse_json(text);
    const bool sound = json.is_object() && json.contains("format") && json["format"].is_string();
    check(sound, ErrorKind::bad_file, file(), ": the description of layer ", layer,
          " is no JSON object with a format; ", kDamaged);
    const std::string format = json["format"].get<std::string>();
    check(!is_rotated(json) && format.find("convrot") == std::string::npos, ErrorKind::unsupported,
          file(), ": layer ", layer, " is ", utf8_start(format, 40),
          " with rotated weights (convrot), which this version does not support; ", kUseAnother);
    check(std::find(kKnown.begin(), kKnown.end(), format) != kKnown.end(), ErrorKind::unsupported,
          file(), ": layer ", layer, " has the format '", utf8_start(format, 40),
          "', which this version does not read; ", kUseAnother);
    return format;
}

void WeightSchemes::check_format(const Layer& layer, std::string_view expected) const {
    check(layer.format.empty() || layer.format == expected, ErrorKind::bad_file, file(), ": layer ",
          layer.name, " is said to be ", layer.format, ", but its weights are of type ",
          type_name(layer.codes.type), "; ", kDamaged);
}

std::unique_ptr<const ScaledMatrix> WeightSchemes::find(const TensorInfo& tensor) const {
    if (source_.format() == FileFormat::gguf || !tensor.name.ends_with(kWeight)) {
        return nullptr;
    }
    const std::string name = tensor.name.substr(0, tensor.name.size() - kWeight.size());
    const Layer layer{name, tensor, format_of(name), find_scales(name)};
    const bool float8 = is_float8(tensor.type);
    const bool coded = tensor.type == TensorType::u8 || tensor.type == TensorType::i8;
    if (!float8 && !coded) {
        check(layer.scales == nullptr && layer.format.empty(), ErrorKind::bad_file, file(),
              ": tensor ", tensor.name, " is of type ", type_name(tensor.type), ", but has ",
              layer.scales != nullptr ? "scales (" + layer.scales->name + ")"
                                      : "the format " + layer.format,
              ", which such weights do not need; ", kDamaged);
        return nullptr;
    }
    const bool expects_scale = coded || !layer.format.empty() ||
                               (tensor.shape.n_dims >= 2 && (n_with_scale_ > 0 || marked_scaled_));
    if (layer.scales == nullptr && !expects_scale) {
        return nullptr;
    }
    check(tensor.shape.elements() > 0, ErrorKind::bad_file, file(), ": tensor ", tensor.name,
          " is empty; the file is broken");
    std::unique_ptr<ScaledMatrix> matrix;
    if (tensor.type == TensorType::u8) {
        matrix = make_nvfp4(layer);
    } else if (layer.scales == nullptr) {
        fail_without_scale(layer);
    } else if (tensor.type == TensorType::i8) {
        matrix = make_int8(layer);
    } else {
        const bool powers_of_two =
            layer.scales->type == TensorType::u8 || layer.scales->type == TensorType::f8_e8m0;
        matrix = powers_of_two || layer.format == "mxfp8" ? make_mxfp8(layer) : make_float8(layer);
    }
    matrix->codes = tensor.bytes;
    set_column_factors(*matrix, layer);
    return matrix;
}

void WeightSchemes::fail_without_scale(const Layer& layer) const {
    const std::string others =
        n_with_scale_ > 0 ? concat(", which ", n_with_scale_, " other matrices have") : "";
    fail(ErrorKind::bad_file, file(), ": tensor ", layer.codes.name, " holds ",
         type_name(layer.codes.type), " codes without their scale ", layer.name, spelling_, others,
         "; ", kDamaged);
}

std::unique_ptr<ScaledMatrix> WeightSchemes::make_float8(const Layer& layer) const {
    const bool e4m3 = layer.codes.type == TensorType::f8_e4m3;
    check_format(layer, e4m3 ? "float8_e4m3fn" : "float8_e5m2");
    auto matrix = std::make_unique<ScaledMatrix>();
    matrix->type = e4m3 ? TensorType::scaled_f8_e4m3 : TensorType::scaled_f8_e5m2;
    matrix->shape = layer.codes.shape;
    set_plain_grid(*matrix, *layer.scales);
    return matrix;
}

std::unique_ptr<ScaledMatrix> WeightSchemes::make_int8(const Layer& layer) const {
    check_format(layer, "int8_tensorwise");
    auto matrix = std::make_unique<ScaledMatrix>();
    matrix->type = TensorType::scaled_i8;
    matrix->shape = layer.codes.shape;
    set_plain_grid(*matrix, *layer.scales);
    return matrix;
}

std::unique_ptr<ScaledMatrix> WeightSchemes::make_mxfp8(const Layer& layer) const {
    constexpr int64_t kBlock = 32;
    check_format(layer, "mxfp8");
    const TensorInfo& scales = *layer.scales;
    check(layer.codes.type == TensorType::f8_e4m3 &&
              (scales.type == TensorType::u8 || scales.type == TensorType::f8_e8m0),
          ErrorKind::bad_file, file(), ": layer ", layer.name, " is MXFP8 with weights of type ",
          type_name(layer.codes.type), " and scales of type ", type_name(scales.type),
          ", where F8_E4M3 and U8 are expected; ", kDamaged);
    auto matrix = std::make_unique<ScaledMatrix>();
    matrix->type = TensorType::scaled_mxfp8;
    matrix->shape = layer.codes.shape;
    set_tiled_grid(*matrix, scales, kBlock);
    matrix->scales.type = TensorType::f8_e8m0;
    return matrix;
}

std::unique_ptr<ScaledMatrix> WeightSchemes::make_nvfp4(const Layer& layer) const {
    constexpr int64_t kBlock = 16;
    check_format(layer, "nvfp4");
    const TensorInfo* factor = attached(layer.name, kTensorScale);
    for (const auto& [found, suffix, what] :
         {std::tuple{attached(layer.name, kScales[0]), kScales[0], "the scales of its blocks"},
          std::tuple{factor, kTensorScale, "the scale of the whole matrix"}}) {
        check(found != nullptr, ErrorKind::bad_file, file(), ": tensor ", layer.codes.name,
              " holds NVFP4 codes, but ", layer.name, suffix, ", ", what, ", is missing; ",
              kDamaged);
    }
    check(layer.codes.shape.n_dims == 2 && layer.scales->type == TensorType::f8_e4m3,
          ErrorKind::bad_file, file(), ": layer ", layer.name, " has codes of shape ",
          to_string(layer.codes.shape), " and scales of type ", type_name(layer.scales->type),
          ", where NVFP4 has a matrix and F8_E4M3; ", kDamaged);
    auto matrix = std::make_unique<ScaledMatrix>();
    matrix->type = TensorType::scaled_nvfp4;
    matrix->shape = {2 * layer.codes.shape.ne[0], layer.codes.shape.ne[1]};
    matrix->factor = single_value(*factor);
    const bool tiled = nvfp4_is_tiled(layer);
    matrix->high_nibble_first = tiled;
    if (tiled) {
        set_tiled_grid(*matrix, *layer.scales, kBlock);
    } else {
        set_plain_grid(*matrix, *layer.scales);
        check(matrix->scales.block_rows == 1 && matrix->scales.block_columns == kBlock,
              ErrorKind::bad_file, file(), ": tensor ", layer.scales->name, " has shape ",
              to_string(layer.scales->shape), ", expected a scale per ", kBlock, " of ",
              to_string(matrix->shape), "; ", kDamaged);
    }
    return matrix;
}

// ComfyUI and BFL have the high half of a byte first and scales in tiles; ModelOpt neither.
bool WeightSchemes::nvfp4_is_tiled(const Layer& layer) const {
    if (!layer.format.empty() || naming_ == Naming::original) {
        return true;
    }
    check(is_modelopt(), ErrorKind::unsupported, file(), ": is NVFP4 with ", to_string(naming_),
          " and nothing that tells the layout of its scales; put the config.json or "
          "hf_quant_config.json of its folder beside it, or use BFL's or ComfyUI's file");
    return false;
}

bool WeightSchemes::is_modelopt() const {
    const fs::path& path = source_.path();
    std::error_code ignored;
    const fs::path folder = fs::is_directory(path, ignored) ? path : path.parent_path();
    if (fs::exists(folder / "hf_quant_config.json", ignored) ||
        source_.metadata().contains("quantization_config")) {
        return true;
    }
    const auto config = read_json_if_present(folder / "config.json");
    return config && config->contains("quantization_config");
}

float WeightSchemes::single_value(const TensorInfo& tensor) const {
    check(tensor.shape.elements() == 1 && is_float(tensor.type), ErrorKind::bad_file, file(),
          ": tensor ", tensor.name, " has shape ", to_string(tensor.shape), " and type ",
          type_name(tensor.type), ", a single float is expected; ", kDamaged);
    float value = 0;
    to_f32(tensor.type, tensor.bytes, std::span(&value, 1));
    check(std::isfinite(value), ErrorKind::bad_file, file(), ": tensor ", tensor.name, " is ",
          value, ", a finite scale is expected; ", kDamaged);
    return value;
}

// One scale, one per row, one per block of a row, or one per square of 128 as Qwen3-FP8 has them.
void WeightSchemes::set_plain_grid(ScaledMatrix& matrix, const TensorInfo& scales) const {
    constexpr int64_t kSquare = 128;
    const int64_t rows = matrix.rows();
    const int64_t columns = matrix.columns();
    check(is_float(scales.type), ErrorKind::bad_file, file(), ": tensor ", scales.name,
          " is of type ", type_name(scales.type), ", floats are expected; ", kDamaged);
    ScaleGrid& grid = matrix.scales;
    grid.type = scales.type;
    grid.bytes = scales.bytes;
    const std::vector<int64_t> sizes = sizes_of(scales.shape);
    const Shape squares{ceil_div(columns, kSquare), ceil_div(rows, kSquare)};
    if (scales.shape.elements() == 1) {
        single_value(scales);
        grid.block_rows = rows;
        grid.block_columns = columns;
    } else if (sizes.size() == 1 && sizes[0] == rows) {
        grid.block_columns = columns;
    } else if (sizes.size() == 2 && sizes[0] == rows && sizes[1] > 0 && columns % sizes[1] == 0) {
        grid.columns = sizes[1];
        grid.block_columns = columns / sizes[1];
    } else if (sizes == sizes_of(squares)) {
        grid.columns = squares.ne[0];
        grid.block_rows = kSquare;
        grid.block_columns = kSquare;
    } else {
        fail(ErrorKind::bad_file, file(), ": tensor ", scales.name, " has shape ",
             to_string(scales.shape), ", which are no scales of a matrix ", to_string(matrix.shape),
             "; ", kDamaged);
    }
}

void WeightSchemes::set_tiled_grid(ScaledMatrix& matrix, const TensorInfo& scales,
                                   int64_t block) const {
    const int64_t columns = matrix.columns() / block;
    const int64_t expected = ceil_div(matrix.rows(), 128) * 128 * ceil_div(columns, 4) * 4;
    check(matrix.columns() % block == 0 && scales.shape.elements() == expected, ErrorKind::bad_file,
          file(), ": tensor ", scales.name, " has ", scales.shape.elements(), " scales, a matrix ",
          to_string(matrix.shape), " of ", type_name(matrix.type), " needs ", expected, "; ",
          kDamaged);
    ScaleGrid& grid = matrix.scales;
    grid.type = scales.type;
    grid.bytes = scales.bytes;
    grid.columns = columns;
    grid.block_columns = block;
    grid.tiled = true;
}

void WeightSchemes::set_column_factors(ScaledMatrix& matrix, const Layer& layer) const {
    const TensorInfo* factors = attached(layer.name, kColumnScale);
    if (factors == nullptr) {
        return;
    }
    check(factors->shape.elements() == matrix.columns() && is_float(factors->type),
          ErrorKind::bad_file, file(), ": tensor ", factors->name, " has shape ",
          to_string(factors->shape), ", a factor for each of ", matrix.columns(),
          " columns is expected; ", kDamaged);
    matrix.column_factors.resize(static_cast<size_t>(matrix.columns()));
    to_f32(factors->type, factors->bytes, matrix.column_factors);
    log(LogLevel::warning, concat(file(), ": ", factors->name,
                                  " is taken for factors of the layer's input, as ModelOpt has "
                                  "them"));
}

}  // namespace flux2
