#include "train/dataset.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/letter_case.hpp"
#include "base/parallel.hpp"
#include "base/utf8.hpp"
#include "formats/json_file.hpp"
#include "image/image.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostTextBytes = 1 << 20;
constexpr size_t kMostListBytes = size_t{1} << 28;

bool is_picture_name(const fs::path& path) {
    const std::string extension = to_lower(path.extension().string());
    return extension == ".png" || extension == ".jpg" || extension == ".jpeg" ||
           extension == ".webp";
}

std::string trimmed(const std::string& text) {
    const char* const blanks = " \t\r\n";
    const size_t begin = text.find_first_not_of(blanks);
    return begin == std::string::npos
               ? ""
               : text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::vector<fs::path> pictures_in(const fs::path& folder, Problems& problems) {
    std::vector<fs::path> files;
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    if (error) {
        problems.add(concat(folder.string(), ": the folder cannot be read (", error.message(),
                            "); name one with pictures"));
        return files;
    }
    for (const fs::directory_entry& entry : entries) {
        const std::string name = entry.path().filename().string();
        if (is_picture_name(entry.path()) && !name.starts_with('.') && !entry.is_directory(error)) {
            files.push_back(entry.path());
        }
    }
    std::sort(files.begin(), files.end());
    return files;
}

// "cat_2" belongs to "cat"; the number, or nothing.
std::optional<int> number_after(const std::string& stem, const std::string& name) {
    if (stem == name) {
        return -1;
    }
    if (!stem.starts_with(name + "_") || stem.size() > name.size() + 4) {
        return std::nullopt;
    }
    int number = 0;
    for (size_t i = name.size() + 1; i < stem.size(); ++i) {
        if (stem[i] < '0' || stem[i] > '9') {
            return std::nullopt;
        }
        number = number * 10 + (stem[i] - '0');
    }
    return stem.size() == name.size() + 1 ? std::nullopt : std::optional(number);
}

std::vector<fs::path> controls_of(const fs::path& picture, const std::vector<fs::path>& controls) {
    std::vector<std::pair<int, fs::path>> found;
    for (const fs::path& control : controls) {
        if (const auto number = number_after(control.stem().string(), picture.stem().string())) {
            found.push_back({*number, control});
        }
    }
    std::sort(found.begin(), found.end());
    std::vector<fs::path> files;
    for (const auto& [number, file] : found) {
        files.push_back(file);
    }
    return files;
}

void find_in_folder(const DatasetSource& source, size_t index,
                    std::vector<DatasetPicture>& pictures, Problems& problems) {
    const std::vector<fs::path> controls = source.control_directory.empty()
                                               ? std::vector<fs::path>()
                                               : pictures_in(source.control_directory, problems);
    for (const fs::path& file : pictures_in(source.image_directory, problems)) {
        DatasetPicture picture;
        picture.file = file;
        picture.source = index;
        const fs::path caption = fs::path(file).replace_extension(source.caption_extension);
        try {
            if (file_exists(caption)) {
                picture.caption = trimmed(
                    decode_text_file(read_text_file(caption, kMostTextBytes), caption.string()));
            } else if (source.default_caption) {
                picture.caption = *source.default_caption;
            } else {
                problems.add(concat(file.string(), ": there is no caption ",
                                    caption.filename().string(),
                                    " beside it; write what the picture shows into that file"));
            }
        } catch (const Error& error) {
            problems.add(error.what());
        }
        if (!source.control_directory.empty()) {
            picture.controls = controls_of(file, controls);
            if (picture.controls.empty()) {
                problems.add(concat(file.string(), ": ", source.control_directory.string(),
                                    " has no picture named ", file.stem().string(),
                                    "; add one, or name no control_directory"));
            }
        }
        pictures.push_back(std::move(picture));
    }
}

// The path as it is, else relative to the list.
fs::path near_list(const fs::path& list, const std::string& name) {
    const fs::path path = name;
    return path.is_absolute() || file_exists(path) ? path : list.parent_path() / path;
}

void add_line(const DatasetSource& source, const nlohmann::json& line, DatasetPicture& picture) {
    const fs::path& list = source.image_jsonl_file;
    picture.file = near_list(list, line.at("image_path").get<std::string>());
    if (line.contains("caption")) {
        picture.caption = trimmed(line.at("caption").get<std::string>());
    } else {
        check(source.default_caption.has_value(), ErrorKind::bad_file, "there is no \"caption\"");
        picture.caption = *source.default_caption;
    }
    if (line.contains("control_path")) {
        picture.controls.push_back(near_list(list, line.at("control_path").get<std::string>()));
    }
    for (int i = 0; line.contains(concat("control_path_", i)); ++i) {
        picture.controls.push_back(
            near_list(list, line.at(concat("control_path_", i)).get<std::string>()));
    }
}

void find_in_list(const DatasetSource& source, size_t index, std::vector<DatasetPicture>& pictures,
                  Problems& problems) {
    std::string text;
    try {
        text = decode_text_file(read_text_file(source.image_jsonl_file, kMostListBytes),
                                source.image_jsonl_file.string());
    } catch (const Error& error) {
        problems.add(error.what());
        return;
    }
    std::istringstream lines(text);
    std::string line;
    for (size_t number = 1; std::getline(lines, line); ++number) {
        if (trimmed(line).empty()) {
            continue;
        }
        DatasetPicture picture;
        picture.source = index;
        try {
            const nlohmann::json object = parse_json(line);
            check(object.is_object(), ErrorKind::bad_file, "this is no JSON object");
            add_line(source, object, picture);
            pictures.push_back(std::move(picture));
        } catch (const std::exception& error) {
            problems.add(concat(source.image_jsonl_file.string(), ":", number, ": ", error.what(),
                                "; a line is {\"image_path\": \"a.png\", \"caption\": \"...\"}"));
        }
    }
}

void check_size(const fs::path& file, int width, int height) {
    check(width >= kImageGrid && height >= kImageGrid, ErrorKind::bad_file, file.string(),
          ": the picture has ", width, "x", height, " pixels; at least ", kImageGrid, "x",
          kImageGrid, " are needed");
}

// Decodes the files of a picture; returns what is wrong with them.
std::vector<std::string> read_picture(const DatasetSource& source, DatasetPicture& picture) {
    std::vector<std::string> wrong;
    WideHash hash;
    const auto read = [&](const fs::path& file, const auto& use) {
        try {
            const MappedFile mapped(file);
            const Image image = decode_image(mapped.bytes(), file.string(), Alpha::white);
            check_size(file, image.width, image.height);
            use(image);
            hash.add(mapped.bytes());
        } catch (const Error& error) {
            wrong.push_back(error.what());
        }
    };
    read(picture.file, [&](const Image& image) {
        picture.size = {image.width, image.height};
        picture.trained = bucket_of(source.bucket, image.width, image.height);
    });
    for (const fs::path& control : picture.controls) {
        read(control, [&](const Image& image) {
            if (source.no_resize_control) {
                fitted_size(image, std::numeric_limits<int64_t>::max());
            }
        });
    }
    picture.content = hash.hex();
    return wrong;
}

}  // namespace

std::vector<DatasetPicture> find_pictures(const std::vector<DatasetSource>& sources, int n_threads,
                                          Problems& problems) {
    std::vector<DatasetPicture> pictures;
    for (size_t i = 0; i < sources.size(); ++i) {
        const DatasetSource& source = sources[i];
        const size_t before = pictures.size();
        const size_t n_problems = problems.lines().size();
        if (source.image_jsonl_file.empty()) {
            find_in_folder(source, i, pictures, problems);
        } else {
            find_in_list(source, i, pictures, problems);
        }
        if (pictures.size() == before && problems.lines().size() == n_problems) {
            problems.add(concat(source.name,
                                ": there are no pictures in it; PNG, JPEG and WebP "
                                "files are used"));
        }
    }
    std::vector<std::vector<std::string>> wrong(pictures.size());
    parallel_for(pictures.size(), n_threads, [&](size_t i, size_t) {
        wrong[i] = read_picture(sources[pictures[i].source], pictures[i]);
    });
    for (const std::vector<std::string>& lines : wrong) {
        for (const std::string& line : lines) {
            problems.add(line);
        }
    }
    return pictures;
}

Image load_trained(const DatasetPicture& picture) {
    return cover(load_image(picture.file, Alpha::white), picture.trained.width,
                 picture.trained.height);
}

Image load_control(const DatasetPicture& picture, size_t index, const DatasetSource& source) {
    const Image image = load_image(picture.controls[index], Alpha::white);
    const std::optional<ImageSize>& limit = source.control_resolution;
    if (source.no_resize_control) {
        return fit_reference(image, limit ? int64_t{limit->width} * limit->height
                                          : std::numeric_limits<int64_t>::max());
    }
    ImageSize size = picture.trained;
    if (limit) {
        size =
            bucket_of({.width = limit->width, .height = limit->height}, image.width, image.height);
    }
    return cover(image, size.width, size.height);
}

Image flipped(const Image& image) {
    Image result = image;
    const auto width = static_cast<size_t>(image.width);
    for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) {
        for (size_t x = 0; x < width; ++x) {
            const size_t from = (y * width + x) * 3, to = (y * width + width - 1 - x) * 3;
            std::copy_n(image.rgb.begin() + static_cast<std::ptrdiff_t>(from), 3,
                        result.rgb.begin() + static_cast<std::ptrdiff_t>(to));
        }
    }
    return result;
}

}  // namespace flux2
