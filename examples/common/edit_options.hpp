// Options for repainting a part of a picture or enlarging it, and the same as facts of a picture.
#pragma once

#include <flux2/flux2.hpp>

#include <cxxopts.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <string>

namespace flux2::cli {

// In place of a mask's file: the transparency of the picture itself.
constexpr const char* kOwnTransparency = "alpha";

// A larger canvas, and where the picture lies on it.
struct Canvas {
    int width = 0, height = 0;
    std::optional<int> x, y;  // of the picture's left upper corner; unset: in the middle
};

struct EditOptions {
    std::filesystem::path mask;  // a picture, or kOwnTransparency
    Inpaint inpaint;             // without its mask
    std::optional<Outpaint> outpaint;
    std::optional<Canvas> canvas;
    bool keep_colours = false;
};

// A group of its own in --help.
void add_edit_options(cxxopts::Options& options);

// Values that are given replace those already there. `has_init`: there is a picture to edit.
// Throws bad_argument.
void read_edit_options(const cxxopts::ParseResult& args, bool has_init, EditOptions& edit);

// "left=256,top=128"
Outpaint parse_outpaint(const std::string& text);
// "1024x768"
Canvas parse_canvas(const std::string& text);
InpaintArea parse_inpaint_area(const std::string& text);

// Puts the edit into a request whose picture is loaded from `init`. Loads the mask. Throws bad_file
// and bad_argument.
void apply_edit(const EditOptions& edit, const std::filesystem::path& init, Request& request);

// What the picture stores, and the options from it. Throws bad_file, naming the picture.
nlohmann::json edit_facts(const EditOptions& edit, const Request& request);
EditOptions edit_from_facts(const nlohmann::json& facts, const std::filesystem::path& picture);

}  // namespace flux2::cli
