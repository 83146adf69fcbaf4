#include "http/picture_fields.hpp"

#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/utf8.hpp"
#include "common/lora_tags.hpp"
#include "common/picture_facts.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr double kLongestPrompt = 32000;  // as OpenAI's
constexpr double kMostSteps = 1000;
constexpr double kMostGuidance = 100;
constexpr double kMostAdapters = 32;
constexpr double kMostStrength = 1000;  // of an adapter

Adapter adapter_of(const json& item, const Service& service) {
    if (item.is_string()) {
        const auto tags = cli::split_tags("<lora:" + item.get<std::string>() + ">").tags;
        if (tags.size() == 1) {
            return service.lora(tags.front().name, tags.front().strength);
        }
    }
    const json name = item.is_object() ? item.value("name", json()) : json();
    const json strength = item.is_object() ? item.value("strength", json(1.0f)) : json();
    if (!name.is_string() || !strength.is_number() ||
        std::abs(strength.get<double>()) > kMostStrength) {
        throw FieldError("lora",
                         "an item of lora is not understood; use \"name\", \"name:0.8\" or "
                         "{\"name\": ..., \"strength\": 0.8}");
    }
    return service.lora(name.get<std::string>(), strength.get<float>());
}

// Calls a function of the library whose errors are about this field.
template <typename Function>
void for_field(const char* field, const Function& function) {
    try {
        function();
    } catch (const FieldError&) {
        throw;
    } catch (const Error& error) {
        throw FieldError(field, error.what());
    }
}

void read_adapters(const RequestFields& fields, const Service& service, Request& request) {
    const json& list = fields.value("lora");
    for_field("lora", [&] {
        for (const json& item : list.is_string() ? json::array({list}) : list) {
            request.adapters.push_back(adapter_of(item, service));
        }
    });
    for_field("prompt", [&] {
        cli::TaggedPrompt tagged = cli::split_tags(request.prompt);
        for (const cli::LoraTag& tag : tagged.tags) {
            request.adapters.push_back(service.lora(tag.name, tag.strength));
        }
        request.prompt = tagged.text;
    });
    if (static_cast<double>(request.adapters.size()) > kMostAdapters) {
        throw FieldError("lora", concat("a request may have ", kMostAdapters, " LoRAs, this has ",
                                        request.adapters.size()));
    }
}

std::string encoded(const Image& image, const PictureFormat& format,
                    const std::vector<ImageText>& texts) {
    const std::vector<std::byte> bytes =
        encode_image(image, format.format, texts, format.compression);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

const FieldTable& prompt_fields() {
    static const FieldTable table = {
        {"prompt", FieldKind::text, "say what to draw", 0, kLongestPrompt, {}, true},
        {"negative_prompt", FieldKind::text,
         "what to keep out of the picture; for models guided by two passes", 0, kLongestPrompt},
        {"seed", FieldKind::seed, "the noise to begin with; absent or -1: a random one"},
        {"steps", FieldKind::integer, "steps of denoising; absent: the model's own", 1, kMostSteps},
        {"guidance", FieldKind::number, "how closely the prompt is followed; absent: the model's",
         0, kMostGuidance},
        {"cfg_scale", FieldKind::number, "guidance by a second pass with the negative prompt", 0,
         kMostGuidance},
        {"lora", FieldKind::objects,
         "LoRAs of this server: \"name\", \"name:0.8\" or {\"name\", \"strength\"}"}};
    return table;
}

void read_prompt_fields(const RequestFields& fields, const Service& service, Request& request) {
    request.prompt = fields.text("prompt");
    request.negative_prompt = fields.text("negative_prompt");
    request.seed = fields.seed("seed");
    request.steps = fields.integer("steps");
    request.guidance = fields.number("guidance");
    request.cfg_scale = fields.number("cfg_scale");
    read_adapters(fields, service, request);
}

void check_side(const std::string& field, int side) {
    if (!is_image_side(side)) {
        throw FieldError(field, concat(field, " has a side of ", side, " pixels, expected ",
                                       kMinSide, " to ", kMaxSide, " in steps of ", kImageGrid));
    }
}

void read_size(const std::string& field, const std::string& text, Request& request) {
    int width = 0, height = 0;
    const char* const end = text.data() + text.size();
    const auto [cross, wrong_width] = std::from_chars(text.data(), end, width);
    const bool has_cross = wrong_width == std::errc() && cross != end && *cross == 'x';
    const auto [last, wrong_height] = std::from_chars(has_cross ? cross + 1 : end, end, height);
    if (!has_cross || wrong_height != std::errc() || last != end) {
        throw FieldError(field, concat(field, " is '", utf8_start(text, 40),
                                       "', expected one such as "
                                       "1024x768, or auto"));
    }
    check_side(field, width);
    check_side(field, height);
    request.width = width;
    request.height = height;
}

PictureFormat picture_format(const std::string& word, int quality) {
    if (word == "png") {
        return {};
    }
    if (word == "jpeg" || word == "jpg") {
        return {ImageFormat::jpeg, "jpeg", "image/jpeg", {.quality = quality}};
    }
    if (word == "webp" && supports_webp()) {
        return {ImageFormat::webp, "webp", "image/webp", {.quality = quality}};
    }
    throw FieldError("output_format", concat("output_format is '", word, "', expected png",
                                             supports_webp() ? ", jpeg or webp" : " or jpeg"));
}

std::string picture_bytes(Service& service, const Picture& picture, const PictureFormat& format) {
    std::optional<std::string> stored = format.format == ImageFormat::png || !picture.image
                                            ? service.store().png(picture.id)
                                            : std::nullopt;
    if (format.format == ImageFormat::png && stored) {
        return std::move(*stored);
    }
    if (!stored && !picture.image) {
        throw StatusError(410, "picture_gone",
                          concat("the picture ", picture.id, " has left the store of results"));
    }
    const std::vector<ImageText> texts = cli::picture_texts(picture.facts);
    return picture.image ? encoded(*picture.image, format, texts)
                         : encoded(decode_image_with_profile(std::as_bytes(std::span(*stored)),
                                                             "the picture"),
                                   format, texts);
}

std::string picture_bytes(const Image& image, const PictureFormat& format) {
    return encoded(image, format, {});
}

}  // namespace flux2::server
