#include "common/edit_options.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/parse_number.hpp"
#include "common/option_values.hpp"
#include "common/stored_facts.hpp"

#include <array>
#include <sstream>
#include <utility>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// "12,34" or "12x34"
std::pair<int, int> parse_pair(const char* option, const std::string& text, char separator,
                               const char* example) {
    const size_t at = text.find(separator);
    check(at != std::string::npos, ErrorKind::bad_argument, option, " ", text,
          " is not understood; use two numbers such as ", example);
    return {parse_int(option, text.substr(0, at)), parse_int(option, text.substr(at + 1))};
}

void read_mask_options(const cxxopts::ParseResult& args, EditOptions& edit) {
    read_path(args, "mask", edit.mask);
    Inpaint& inpaint = edit.inpaint;
    inpaint.invert = inpaint.invert || args.count("mask-invert") > 0;
    read_int(args, "mask-grow", inpaint.grow);
    read_int(args, "mask-blur", inpaint.blur);
    read_int(args, "mask-blend", inpaint.blend);
    read_int(args, "inpaint-padding", inpaint.padding);
    if (args.count("inpaint-area") > 0) {
        inpaint.area = parse_inpaint_area(given(args, "inpaint-area"));
    }
    for (const char* option :
         {"mask-invert", "mask-grow", "mask-blur", "inpaint-area", "inpaint-padding"}) {
        check(args.count(option) == 0 || !edit.mask.empty(), ErrorKind::bad_argument, "--", option,
              " goes with a mask; add --mask FILE");
    }
}

// The margins that put a picture onto a canvas.
Outpaint margins_of(const Canvas& canvas, const Image& picture) {
    const int x = canvas.x.value_or((canvas.width - picture.width) / 2);
    const int y = canvas.y.value_or((canvas.height - picture.height) / 2);
    const Outpaint margins = {x, y, canvas.width - x - picture.width,
                              canvas.height - y - picture.height};
    check(margins.left >= 0 && margins.top >= 0 && margins.right >= 0 && margins.bottom >= 0,
          ErrorKind::bad_argument, "a picture of ", picture.width, "x", picture.height, " at ", x,
          ",", y, " does not lie within a canvas of ", canvas.width, "x", canvas.height,
          "; make the canvas larger or move the picture with --at X,Y");
    return margins;
}

}  // namespace

void add_edit_options(cxxopts::Options& options) {
    options.add_options("Editing")  //
        ("mask",
         "repaint this part of --init-img and keep the rest: a picture, white or transparent = "
         "repaint; alpha: what is transparent in --init-img itself",
         text())                                                                       //
        ("mask-invert", "repaint what the mask leaves out")                            //
        ("mask-grow", "widen the mask by so many pixels; below 0: narrow it", text())  //
        ("mask-blur", "make its edges soft over so many pixels", text())               //
        ("mask-blend", "pixels inside its edge that pass into the picture", text())    //
        ("inpaint-area",
         "what the model sees: whole, or masked for the region around the mask at full "
         "resolution (default whole)",
         text())                                                                           //
        ("inpaint-padding", "pixels around a masked area (default: by its size)", text())  //
        ("outpaint", "enlarge --init-img and paint what is new, such as left=256,top=128",
         text())                                                                    //
        ("canvas", "the same by the size of the whole, such as 1536x1024", text())  //
        ("at", "where the picture lies on the canvas, such as 0,256 (default: the middle)",
         text())  //
        ("keep-colours,keep-colors",
         "match the result's colours to those of --init-img or the first reference");
}

void read_edit_options(const cxxopts::ParseResult& args, bool has_init, EditOptions& edit) {
    read_mask_options(args, edit);
    check(args.count("outpaint") == 0 || args.count("canvas") == 0, ErrorKind::bad_argument,
          "--outpaint and --canvas say the same in two ways; leave out one of them");
    if (args.count("outpaint") > 0) {
        edit.outpaint = parse_outpaint(given(args, "outpaint"));
        edit.canvas.reset();
    }
    if (args.count("canvas") > 0) {
        edit.canvas = parse_canvas(given(args, "canvas"));
        edit.outpaint.reset();
    }
    if (args.count("at") > 0) {
        check(edit.canvas.has_value(), ErrorKind::bad_argument,
              "--at places the picture on a canvas; add --canvas WIDTHxHEIGHT");
        const auto [x, y] = parse_pair("--at", given(args, "at"), ',', "0,256");
        edit.canvas->x = x;
        edit.canvas->y = y;
    }
    check(has_init || (edit.mask.empty() && !edit.outpaint && !edit.canvas),
          ErrorKind::bad_argument,
          "a mask or a larger canvas needs a picture to change; add --init-img FILE");
    check(args.count("mask-blend") == 0 || !edit.mask.empty() || edit.outpaint || edit.canvas,
          ErrorKind::bad_argument, "--mask-blend goes with a mask; add --mask FILE");
    edit.keep_colours = edit.keep_colours || args.count("keep-colours") > 0;
}

Outpaint parse_outpaint(const std::string& text) {
    Outpaint outpaint;
    const std::array<std::pair<const char*, int*>, 4> sides = {{{"left", &outpaint.left},
                                                                {"top", &outpaint.top},
                                                                {"right", &outpaint.right},
                                                                {"bottom", &outpaint.bottom}}};
    std::istringstream in(text);
    for (std::string item; std::getline(in, item, ',');) {
        const size_t equals = item.find('=');
        int* side = nullptr;
        for (const auto& [name, margin] : sides) {
            side = item.substr(0, equals) == name ? margin : side;
        }
        check(side != nullptr && equals != std::string::npos, ErrorKind::bad_argument,
              "--outpaint ", text,
              " is not understood; use left, top, right and bottom such as left=256,top=128");
        *side = parse_int(concat("--outpaint ", item.substr(0, equals)), item.substr(equals + 1));
    }
    return outpaint;
}

Canvas parse_canvas(const std::string& text) {
    const auto [width, height] = parse_pair("--canvas", text, 'x', "1536x1024");
    return {width, height, {}, {}};
}

InpaintArea parse_inpaint_area(const std::string& text) {
    check(text == "whole" || text == "masked", ErrorKind::bad_argument, "--inpaint-area ", text,
          " is unknown; use whole or masked");
    return text == "masked" ? InpaintArea::masked : InpaintArea::whole;
}

void apply_edit(const EditOptions& edit, const fs::path& init, Request& request) {
    request.keep_colours = edit.keep_colours;
    if (!edit.mask.empty()) {
        const bool is_own = edit.mask == kOwnTransparency && !file_exists(edit.mask);
        request.inpaint = edit.inpaint;
        request.inpaint->mask = load_mask(is_own ? init : edit.mask);
    }
    request.outpaint = edit.outpaint;
    if (edit.canvas && request.init) {
        request.outpaint = margins_of(*edit.canvas, request.init->image);
    }
}

json edit_facts(const EditOptions& edit, const Request& request) {
    const auto or_null = [](const auto& value) { return value ? json(*value) : json(); };
    if (!request.inpaint && !request.outpaint) {
        return nullptr;
    }
    const bool is_file = !edit.mask.empty() && file_exists(edit.mask);
    const Outpaint outpaint = request.outpaint.value_or(Outpaint{});
    return {{"mask", is_file ? full_path(edit.mask).string() : edit.mask.string()},
            {"mask_invert", edit.inpaint.invert},
            {"mask_grow", edit.inpaint.grow},
            {"mask_blur", edit.inpaint.blur},
            {"mask_blend", or_null(edit.inpaint.blend)},
            {"inpaint_area", edit.inpaint.area == InpaintArea::masked ? "masked" : "whole"},
            {"inpaint_padding", or_null(edit.inpaint.padding)},
            {"outpaint", {outpaint.left, outpaint.top, outpaint.right, outpaint.bottom}},
            // The size the model was told to work at; that of the picture follows from its source.
            {"width", or_null(request.width)},
            {"height", or_null(request.height)}};
}

EditOptions edit_from_facts(const json& facts, const fs::path& picture) {
    EditOptions edit;
    edit.mask = get_fact<std::string>(facts, "mask", "", picture);
    edit.inpaint.invert = get_fact<bool>(facts, "mask_invert", false, picture);
    edit.inpaint.grow = get_fact<int>(facts, "mask_grow", 0, picture);
    edit.inpaint.blur = get_fact<int>(facts, "mask_blur", 0, picture);
    edit.inpaint.blend = find_fact<int>(facts, "mask_blend", picture);
    edit.inpaint.area =
        parse_inpaint_area(get_fact<std::string>(facts, "inpaint_area", "whole", picture));
    edit.inpaint.padding = find_fact<int>(facts, "inpaint_padding", picture);
    const auto margins = get_fact<std::vector<int>>(facts, "outpaint", {}, picture);
    check(margins.empty() || margins.size() == 4, ErrorKind::bad_file, picture.string(),
          ": its settings are broken at 'outpaint'; give them on the command line instead");
    if (!margins.empty() && margins != std::vector<int>(4)) {
        edit.outpaint = Outpaint{margins[0], margins[1], margins[2], margins[3]};
    }
    return edit;
}

}  // namespace flux2::cli
