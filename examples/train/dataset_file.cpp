#include "train/dataset_file.hpp"

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/image_limits.hpp"

#define TOML_EXCEPTIONS 1
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array kKnownKeys = {"resolution",        "caption_extension", "batch_size",
                                   "num_repeats",       "enable_bucket",     "bucket_no_upscale",
                                   "image_directory",   "image_jsonl_file",  "cache_directory",
                                   "control_directory", "no_resize_control", "control_resolution",
                                   "default_caption"};
// musubi-tuner's prefix of keys that hold for FLUX.2 alone; without it they mean the same here.
constexpr std::string_view kFlux2Prefix = "flux_2_";
constexpr int kDefaultWidth = 960, kDefaultHeight = 544;  // musubi-tuner's

// One table of the file, with [general] behind it.
class Section {
  public:
    Section(const fs::path& file, const toml::table* own, const toml::table* general,
            Problems& problems)
        : file_(file), own_(own), general_(general), problems_(problems) {}

    void add_problem(const toml::node& node, const std::string& text) {
        problems_.add(concat(file_.string(), ":", node.source().begin.line, ": ", text));
    }

    template <typename T>
    void read(const char* key, const char* what, T& target) {
        const toml::node* node = find(key);
        if (node == nullptr) {
            return;
        }
        using Native = std::conditional_t<std::is_same_v<T, int>, int64_t, T>;
        const auto value = node->value_exact<Native>();
        if (!value) {
            add_problem(*node, concat(key, " is no ", what));
        } else if constexpr (std::is_same_v<T, int>) {
            if (*value < 1 || *value > 10000) {
                add_problem(*node, concat(key, " is ", *value, "; use 1 to 10000"));
            } else {
                target = static_cast<int>(*value);
            }
        } else {
            target = *value;
        }
    }

    void read_path(const char* key, fs::path& target) {
        std::string text;
        read(key, "text in quotes", text);
        if (!text.empty()) {
            const fs::path path = text;
            const fs::path beside = file_.parent_path() / path;
            target =
                !path.is_absolute() && !file_exists(path) && file_exists(beside) ? beside : path;
        }
    }

    std::optional<ImageSize> read_size(const char* key) {
        const toml::node* node = find(key);
        if (node == nullptr) {
            return std::nullopt;
        }
        std::optional<int64_t> width = node->value_exact<int64_t>(), height = width;
        if (const toml::array* pair = node->as_array(); pair != nullptr && pair->size() == 2) {
            width = (*pair)[0].value_exact<int64_t>();
            height = (*pair)[1].value_exact<int64_t>();
        }
        if (!width || !height) {
            add_problem(*node, concat(key, " is no size; write 512 or [768, 512]"));
            return std::nullopt;
        }
        const auto is_side = [](int64_t side) { return side >= kMinSide && side <= kMaxSide; };
        if (!is_side(*width) || !is_side(*height)) {
            add_problem(*node, concat(key, " is ", *width, "x", *height, "; sides must be ",
                                      kMinSide, " to ", kMaxSide));
            return std::nullopt;
        }
        return ImageSize{static_cast<int>(*width), static_cast<int>(*height)};
    }

    bool has(const char* key) const { return find(key) != nullptr; }

  private:
    const toml::node* find(const std::string& key) const {
        for (const toml::table* table : {own_, general_}) {
            for (const std::string& name : {key, std::string(kFlux2Prefix) + key}) {
                if (const toml::node* node = table == nullptr ? nullptr : table->get(name)) {
                    return node;
                }
            }
        }
        return nullptr;
    }

    const fs::path& file_;
    const toml::table* own_;
    const toml::table* general_;
    Problems& problems_;
};

void check_keys(const fs::path& file, const toml::table& table, Problems& problems) {
    for (const auto& [key, node] : table) {
        std::string_view name = key.str();
        if (name.starts_with(kFlux2Prefix)) {
            name.remove_prefix(kFlux2Prefix.size());
        }
        const bool is_known =
            std::find(kKnownKeys.begin(), kKnownKeys.end(), name) != kKnownKeys.end();
        if (!is_known) {
            const bool is_video = name.find("video") != std::string_view::npos ||
                                  name.find("frame") != std::string_view::npos;
            problems.add(concat(
                file.string(), ":", key.source().begin.line, ": the key ", key.str(),
                is_video ? " is about videos; FLUX.2 is trained on pictures" : " is unknown"));
        }
    }
}

DatasetSource read_source(const fs::path& file, const toml::table& table,
                          const toml::table* general, size_t number, Problems& problems) {
    check_keys(file, table, problems);
    Section section(file, &table, general, problems);
    DatasetSource source;
    source.name = concat(file.string(), ": dataset ", number);
    source.bucket = {.width = kDefaultWidth, .height = kDefaultHeight, .enabled = false};
    if (std::optional<ImageSize> size = section.read_size("resolution")) {
        // Without buckets it is the size itself, which musubi-tuner rounds down too.
        source.bucket.width = size->width - size->width % kImageGrid;
        source.bucket.height = size->height - size->height % kImageGrid;
    }
    section.read("enable_bucket", "true or false", source.bucket.enabled);
    section.read("bucket_no_upscale", "true or false", source.bucket.no_upscale);
    section.read("caption_extension", "text in quotes", source.caption_extension);
    section.read("batch_size", "whole number", source.batch_size);
    section.read("num_repeats", "whole number", source.num_repeats);
    section.read_path("image_directory", source.image_directory);
    section.read_path("image_jsonl_file", source.image_jsonl_file);
    section.read_path("control_directory", source.control_directory);
    section.read_path("cache_directory", source.cache_directory);
    section.read("no_resize_control", "true or false", source.no_resize_control);
    if (section.has("default_caption")) {
        source.default_caption.emplace();
        section.read("default_caption", "text in quotes", *source.default_caption);
    }
    source.control_resolution = section.read_size("control_resolution");
    if (source.image_directory.empty() == source.image_jsonl_file.empty()) {
        section.add_problem(table, "a dataset names one of image_directory and image_jsonl_file");
    }
    return source;
}

}  // namespace

std::vector<DatasetSource> read_dataset_file(const fs::path& file, Problems& problems) {
    constexpr size_t kMostBytes = 1 << 24;
    std::vector<DatasetSource> sources;
    toml::table root;
    try {
        root = toml::parse(read_text_file(file, kMostBytes), file.string());
    } catch (const toml::parse_error& error) {
        problems.add(
            concat(file.string(), ":", error.source().begin.line, ": ", error.description()));
        return sources;
    } catch (const Error& error) {
        problems.add(error.what());
        return sources;
    }
    for (const auto& [key, node] : root) {
        if (key.str() != "general" && key.str() != "datasets") {
            problems.add(concat(file.string(), ":", key.source().begin.line, ": ", key.str(),
                                " is unknown; a dataset file has [general] and [[datasets]]"));
        }
    }
    const toml::table* general = root["general"].as_table();
    if (general != nullptr) {
        check_keys(file, *general, problems);
    }
    const toml::array* datasets = root["datasets"].as_array();
    if (datasets == nullptr || datasets->empty()) {
        problems.add(concat(file.string(), ": there is no [[datasets]] in it"));
        return sources;
    }
    size_t number = 0;
    for (const toml::node& node : *datasets) {
        if (!node.is_table()) {
            problems.add(concat(file.string(), ":", node.source().begin.line,
                                ": an entry of datasets is no table; write [[datasets]]"));
            continue;
        }
        ++number;
        DatasetSource source = read_source(file, *node.as_table(), general, number, problems);
        if (!source.image_directory.empty() || !source.image_jsonl_file.empty()) {
            sources.push_back(std::move(source));
        }
    }
    return sources;
}

}  // namespace flux2::cli
