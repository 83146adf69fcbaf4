#include "commands/session_settings.hpp"

#include "base/check.hpp"
#include "base/text_stream.hpp"
#include "common/reference_options.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

struct Key {
    std::vector<std::string> names;  // the first is shown
    std::function<void(const LineSetting&, const PictureByName&, GenerateOptions&)> set;
    std::function<void(const GenerateOptions& from, GenerateOptions& to)> copy;
    std::function<void(const GenerateOptions&, std::ostream&)> show;
};

// A setting of the request that is a number or unset.
template <typename T, typename Parse>
Key number(std::vector<std::string> names, std::optional<T> Request::*field, const Parse& parse) {
    return {std::move(names),
            [=](const LineSetting& s, const PictureByName&, GenerateOptions& o) {
                const std::string text = s.text();
                o.request.*field = text.empty() ? std::nullopt : std::optional<T>(parse(s, text));
            },
            [=](const GenerateOptions& from, GenerateOptions& to) {
                to.request.*field = from.request.*field;
            },
            [=](const GenerateOptions& o, std::ostream& out) {
                if (o.request.*field) {
                    out << *(o.request.*field);
                }
            }};
}

int whole(const LineSetting& s, const std::string& text) {
    return parse_int(s.key, text);
}

float real(const LineSetting& s, const std::string& text) {
    return parse_float(s.key, text);
}

uint64_t seed(const LineSetting&, const std::string& text) {
    return parse_seed(text);
}

size_t reference_number(const LineSetting& s, const std::string& text) {
    const int number = parse_int(s.key, text);
    check(number >= 0, ErrorKind::bad_argument, s.key, " counts references from 0");
    return static_cast<size_t>(number);
}

// Throws now if it cannot be read.
fs::path readable_picture(const std::string& name, const PictureByName& picture,
                          const GenerateOptions& o) {
    const fs::path file = picture(name);
    load_image(file, o.alpha);
    return file;
}

Key cfg_interval() {
    return {{"cfg_interval"},
            [](const LineSetting& s, const PictureByName&, GenerateOptions& o) {
                const std::string text = s.text();
                o.request.guidance_interval =
                    text.empty() ? GuidanceInterval{} : parse_interval(s.key, text);
            },
            [](const GenerateOptions& from, GenerateOptions& to) {
                to.request.guidance_interval = from.request.guidance_interval;
            },
            [](const GenerateOptions& o, std::ostream& out) {
                out << o.request.guidance_interval.from << "," << o.request.guidance_interval.until;
            }};
}

Key negative_prompt() {
    return {{"negative_prompt"},
            [](const LineSetting& s, const PictureByName&, GenerateOptions& o) {
                o.request.negative_prompt = s.text();
            },
            [](const GenerateOptions& from, GenerateOptions& to) {
                to.request.negative_prompt = from.request.negative_prompt;
            },
            [](const GenerateOptions& o, std::ostream& out) { out << o.request.negative_prompt; }};
}

Key input_images() {
    return {{"input_images"},
            [](const LineSetting& s, const PictureByName& picture, GenerateOptions& o) {
                std::vector<ReferenceFile> references;
                for (const std::string& item : s.items) {
                    ReferenceFile& reference = references.emplace_back(parse_reference(item));
                    reference.file = readable_picture(reference.file.string(), picture, o);
                }
                set_references(references, o);
            },
            [](const GenerateOptions& from, GenerateOptions& to) {
                to.references = from.references;
                to.request.reference_roles = from.request.reference_roles;
            },
            [](const GenerateOptions& o, std::ostream& out) {
                for (size_t i = 0; i < o.references.size(); ++i) {
                    const std::string& role = o.request.reference_roles.at(i);
                    out << (i == 0 ? "" : ",") << role << (role.empty() ? "" : "=")
                        << o.references[i].string();
                }
            }};
}

Key init_img() {
    return {{"init_img", "init"},
            [](const LineSetting& s, const PictureByName& picture, GenerateOptions& o) {
                const std::string text = s.text();
                o.init = text.empty() ? fs::path() : readable_picture(text, picture, o);
            },
            [](const GenerateOptions& from, GenerateOptions& to) { to.init = from.init; },
            [](const GenerateOptions& o, std::ostream& out) { out << o.init.string(); }};
}

Key strength() {
    return {{"strength"},
            [](const LineSetting& s, const PictureByName&, GenerateOptions& o) {
                const std::string text = s.text();
                o.strength = text.empty() ? std::nullopt : std::optional(real(s, text));
            },
            [](const GenerateOptions& from, GenerateOptions& to) { to.strength = from.strength; },
            [](const GenerateOptions& o, std::ostream& out) {
                if (o.strength) {
                    out << *o.strength;
                }
            }};
}

Key mask() {
    return {{"mask"},
            [](const LineSetting& s, const PictureByName& picture, GenerateOptions& o) {
                const std::string text = s.text();
                const bool is_file = !text.empty() && text != kOwnTransparency;
                o.edit.mask = is_file ? picture(text) : fs::path(text);
                if (is_file) {
                    load_mask(o.edit.mask);  // throws now if it cannot be read
                }
            },
            [](const GenerateOptions& from, GenerateOptions& to) { to.edit.mask = from.edit.mask; },
            [](const GenerateOptions& o, std::ostream& out) { out << o.edit.mask.string(); }};
}

// A number of pixels of the mask.
Key mask_pixels(const std::string& name, int Inpaint::*field) {
    return {{name},
            [=](const LineSetting& s, const PictureByName&, GenerateOptions& o) {
                const std::string text = s.text();
                o.edit.inpaint.*field = text.empty() ? 0 : whole(s, text);
            },
            [=](const GenerateOptions& from, GenerateOptions& to) {
                to.edit.inpaint.*field = from.edit.inpaint.*field;
            },
            [=](const GenerateOptions& o, std::ostream& out) { out << o.edit.inpaint.*field; }};
}

Key inpaint_area() {
    return {{"inpaint_area"},
            [](const LineSetting& s, const PictureByName&, GenerateOptions& o) {
                const std::string text = s.text();
                o.edit.inpaint.area = parse_inpaint_area(text.empty() ? "whole" : text);
            },
            [](const GenerateOptions& from, GenerateOptions& to) {
                to.edit.inpaint.area = from.edit.inpaint.area;
            },
            [](const GenerateOptions& o, std::ostream& out) {
                out << (o.edit.inpaint.area == InpaintArea::masked ? "masked" : "whole");
            }};
}

Key outpaint() {
    return {{"outpaint"},
            [](const LineSetting& s, const PictureByName&, GenerateOptions& o) {
                const std::string text = s.text();
                o.edit.outpaint = text.empty() ? std::nullopt : std::optional(parse_outpaint(text));
                o.edit.canvas.reset();
            },
            [](const GenerateOptions& from, GenerateOptions& to) {
                to.edit.outpaint = from.edit.outpaint;
                to.edit.canvas = from.edit.canvas;
            },
            [](const GenerateOptions& o, std::ostream& out) {
                if (const auto& margins = o.edit.outpaint) {
                    out << "left=" << margins->left << ",top=" << margins->top
                        << ",right=" << margins->right << ",bottom=" << margins->bottom;
                }
            }};
}

// In the order in which they are shown.
const std::vector<Key>& all_keys() {
    static const std::vector<Key> keys = {
        number<int>({"width"}, &Request::width, whole),
        number<int>({"height"}, &Request::height, whole),
        number<int>({"steps", "num_steps"}, &Request::steps, whole),
        number<float>({"guidance"}, &Request::guidance, real),
        number<float>({"cfg_scale"}, &Request::cfg_scale, real),
        cfg_interval(),
        number<uint64_t>({"seed"}, &Request::seed, seed),
        negative_prompt(),
        input_images(),
        number<size_t>({"match_image_size"}, &Request::match_reference, reference_number),
        init_img(),
        strength(),
        mask(),
        mask_pixels("mask_grow", &Inpaint::grow),
        mask_pixels("mask_blur", &Inpaint::blur),
        inpaint_area(),
        outpaint()};
    return keys;
}

const Key& key_named(const std::string& name) {
    const std::vector<Key>& keys = all_keys();
    const auto found = std::find_if(keys.begin(), keys.end(), [&](const Key& key) {
        return std::find(key.names.begin(), key.names.end(), name) != key.names.end();
    });
    check(found != keys.end(), ErrorKind::internal, "no setting ", name);
    return *found;
}

}  // namespace

const std::set<std::string>& session_keys() {
    static const std::set<std::string> names = [] {
        std::set<std::string> all;
        for (const Key& key : all_keys()) {
            all.insert(key.names.begin(), key.names.end());
        }
        return all;
    }();
    return names;
}

void apply_setting(const LineSetting& setting, const PictureByName& picture,
                   GenerateOptions& options) {
    key_named(setting.key).set(setting, picture, options);
}

void copy_setting(const std::string& key, const GenerateOptions& from, GenerateOptions& options) {
    key_named(key).copy(from, options);
}

std::string describe_settings(const GenerateOptions& options) {
    TextStream out;
    for (const Key& key : all_keys()) {
        out << key.names.front() << "=";
        key.show(options, out);
        out << "\n";
    }
    return out.str();
}

}  // namespace flux2::cli
