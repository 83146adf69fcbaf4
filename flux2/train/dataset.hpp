// Pictures with captions to train on: where they come from, and what each one is.
#pragma once

#include "image/region.hpp"
#include "train/buckets.hpp"
#include "train/problems.hpp"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flux2 {

// A set of pictures and how they are used; the names are those of kohya-ss/musubi-tuner's dataset
// files.
struct DatasetSource {
    std::string name;  // as messages name it
    // One of the two: a folder of pictures with captions beside them, or a file with a JSON object
    // {"image_path", "caption"} per line, whose paths are relative to the current folder or to it.
    std::filesystem::path image_directory, image_jsonl_file;
    std::string caption_extension = ".txt";
    std::optional<std::string> default_caption = std::nullopt;  // of pictures without a file
    // Pictures that the model is shown beside the caption: those with the same name, or name_0,
    // name_1, ... Empty: none.
    std::filesystem::path control_directory = {};
    bool no_resize_control = false;  // they keep their size, cut to multiples of 16
    std::optional<ImageSize> control_resolution = std::nullopt;
    std::filesystem::path cache_directory = {};  // empty: the program's
    BucketRule bucket = {};
    int batch_size = 1;
    int num_repeats = 1;
};

struct DatasetPicture {
    std::filesystem::path file;
    std::string caption;
    std::vector<std::filesystem::path> controls;
    size_t source = 0;    // which of the sources
    ImageSize size;       // upright
    ImageSize trained;    // its bucket
    std::string content;  // a hash of the files
};

// All pictures, sorted by name within a source. Every file is read and decoded. What is wrong is
// added to the problems: missing folders, unreadable pictures, missing captions, sides under 16
// pixels, a source without pictures.
std::vector<DatasetPicture> find_pictures(const std::vector<DatasetSource>& sources, int n_threads,
                                          Problems& problems);

// The picture as it is trained: scaled until it covers its size, the middle cropped.
Image load_trained(const DatasetPicture& picture);
// One of its controls, as the source says. Throws bad_file naming the file.
Image load_control(const DatasetPicture& picture, size_t index, const DatasetSource& source);

// The mirror image.
Image flipped(const Image& image);

}  // namespace flux2
