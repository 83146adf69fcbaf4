#include "formats/tensor_source.hpp"

#include "base/check.hpp"
#include "formats/gguf_file.hpp"
#include "formats/safetensors.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

// "model-00002-of-00004.safetensors", or .gguf as llama.cpp splits files
struct ShardName {
    std::string stem;  // "model"
    int n_shards;
    std::string suffix;  // ".safetensors"

    std::string file_name(int i) const {
        const auto padded = [](int n) {
            const std::string digits = std::to_string(n);
            return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
        };
        return stem + "-" + padded(i) + "-of-" + padded(n_shards) + suffix;
    }
};

std::optional<ShardName> parse_shard_name(const std::string& name) {
    constexpr std::string_view kPattern = "-00000-of-00000";
    const std::string suffix = name.ends_with(".gguf") ? ".gguf" : ".safetensors";
    if (!name.ends_with(suffix) || name.size() <= kPattern.size() + suffix.size()) {
        return std::nullopt;
    }
    const size_t begin = name.size() - suffix.size() - kPattern.size();
    for (size_t i = 0; i < kPattern.size(); ++i) {
        const bool digit = name[begin + i] >= '0' && name[begin + i] <= '9';
        if (kPattern[i] == '0' ? !digit : name[begin + i] != kPattern[i]) {
            return std::nullopt;
        }
    }
    return ShardName{name.substr(0, begin), std::stoi(name.substr(begin + 10, 5)), suffix};
}

// What a part of a split GGUF says about the split must agree with its name. llama.cpp counts parts
// from 0.
void check_split(const std::string& file, const Metadata& metadata, int part, int n_parts) {
    const int64_t no = metadata.get_int("split.no").value_or(part - 1);
    const int64_t count = metadata.get_int("split.count").value_or(n_parts);
    check(no == part - 1 && count == n_parts, ErrorKind::bad_file, file, ": says that it is part ",
          no + 1, " of ", count, ", its name says ", part, " of ", n_parts,
          "; give it its own name again");
}

// The pairs of a split file's first part that are about the whole file.
Metadata without_split(const std::string& file, const Metadata& metadata) {
    Metadata whole(file);
    for (const auto& [key, value] : metadata.entries()) {
        if (!key.starts_with("split.")) {
            whole.set(key, value);
        }
    }
    return whole;
}

std::string file_name(const fs::path& path) {
    return path.filename().string();
}

}  // namespace

std::vector<fs::path> checkpoints_in(const fs::path& folder) {
    std::error_code error;
    std::set<fs::path> found;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = file_name(entry->path());
        std::error_code ignored;
        if (name.starts_with('.') || fs::is_directory(entry->path(), ignored)) {
            continue;
        }
        if (const auto shard = parse_shard_name(name)) {
            // A sharded checkpoint is listed by its index, else by its first shard, even if that is
            // missing.
            const fs::path index = folder / (shard->stem + std::string(kIndexSuffix));
            found.insert(file_exists(index) ? index : folder / shard->file_name(1));
        } else if (name.ends_with(kIndexSuffix) || name.ends_with(".safetensors") ||
                   name.ends_with(".gguf")) {
            found.insert(entry->path());
        }
    }
    check(!error, ErrorKind::bad_file, folder.string(),
          ": the folder cannot be read: ", error.message());
    return {found.begin(), found.end()};
}

TensorSource::TensorSource(fs::path path, FileFormat format)
    : path_(std::move(path)), format_(format) {}

TensorSource TensorSource::open(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        return open_folder(path);
    }
    if (file_name(path).ends_with(kIndexSuffix)) {
        return open_index(path);
    }
    if (parse_shard_name(file_name(path))) {
        return open_shards(path);
    }
    return open_file(path);
}

TensorSource TensorSource::open_file(const fs::path& path) {
    TensorSource source(path, FileFormat::safetensors);
    source.directory_ = source.map_file(path);
    source.build_index();
    return source;
}

TensorSource TensorSource::open_index(const fs::path& index) {
    TensorSource source(index, FileFormat::safetensors);
    const std::map<std::string, std::string> shard_of = read_shard_index(index);
    std::set<std::string> shards;
    for (const auto& [name, shard] : shard_of) {
        shards.insert(shard);
    }
    for (const std::string& shard : shards) {
        const fs::path path = index.parent_path() / shard;
        check(file_exists(path), ErrorKind::bad_file, index.string(), " names the shard ", shard,
              ", which is missing; download it into the same folder");
        TensorDirectory directory = source.map_file(path);
        for (TensorInfo& tensor : directory.tensors) {
            const auto found = shard_of.find(tensor.name);
            if (found != shard_of.end() && found->second == shard) {
                source.directory_.tensors.push_back(std::move(tensor));
            }
        }
    }
    source.build_index();
    for (const auto& [name, shard] : shard_of) {
        check(source.find(name) != nullptr, ErrorKind::bad_file, index.string(), ": tensor ", name,
              " is not in ", shard, " as the index says; download both again");
    }
    return source;
}

TensorSource TensorSource::open_shards(const fs::path& shard) {
    const ShardName name = *parse_shard_name(file_name(shard));
    check(name.n_shards >= 1, ErrorKind::bad_file, shard.string(),
          " claims to be one of no shards; rename it");
    TensorSource source(shard, FileFormat::safetensors);
    int64_t n_tensors = -1;  // that a split GGUF should have
    for (int i = 1; i <= name.n_shards; ++i) {
        const fs::path path = shard.parent_path() / name.file_name(i);
        check(file_exists(path), ErrorKind::bad_file, path.string(), ": missing shard ", i, " of ",
              name.n_shards, "; download it into the same folder");
        TensorDirectory directory = source.map_file(path);
        if (source.format_ == FileFormat::gguf) {
            check_split(path.string(), directory.metadata, i, name.n_shards);
            if (i == 1) {
                n_tensors = directory.metadata.get_int("split.tensors.count").value_or(-1);
                source.directory_.metadata = without_split(path.string(), directory.metadata);
            }
        }
        std::move(directory.tensors.begin(), directory.tensors.end(),
                  std::back_inserter(source.directory_.tensors));
    }
    source.build_index();
    check(n_tensors < 0 || source.tensors().size() == static_cast<size_t>(n_tensors),
          ErrorKind::bad_file, shard.string(), ": its ", name.n_shards, " parts hold ",
          source.tensors().size(), " tensors, ", n_tensors, " are expected; download them again");
    return source;
}

TensorSource TensorSource::open_folder(const fs::path& folder) {
    const std::vector<fs::path> candidates = checkpoints_in(folder);
    check(!candidates.empty(), ErrorKind::bad_file, folder.string(),
          ": holds no .safetensors or .gguf file");
    check(candidates.size() == 1, ErrorKind::bad_file, folder.string(), ": holds several models, ",
          file_name(candidates.front()), " and ", file_name(candidates.back()),
          " among them; name the one you mean");
    return open(candidates.front());
}

const TensorInfo* TensorSource::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &directory_.tensors[found->second];
}

// Maps a file, notes its format and returns what it holds.
TensorDirectory TensorSource::map_file(const fs::path& path) {
    const MappedFile& file = files_.emplace_back(path);
    if (is_gguf(file.bytes())) {
        format_ = FileFormat::gguf;
        return parse_gguf(path.string(), file.bytes());
    }
    return parse_safetensors(path.string(), file.bytes());
}

void TensorSource::build_index() {
    for (size_t i = 0; i < directory_.tensors.size(); ++i) {
        const std::string& name = directory_.tensors[i].name;
        check(index_.emplace(name, i).second, ErrorKind::bad_file, path_.string(), ": tensor ",
              name, " is in two shards; the checkpoint is broken");
    }
}

std::string identity(const TensorSource& source) {
    std::string text;
    for (const MappedFile& file : source.files()) {
        const FileStamp& stamp = file.stamp();
        text += concat(full_path(file.path()).string(), " ", stamp.size_bytes, " ", stamp.modified,
                       " ", stamp.number, "\n");
    }
    return text;
}

const MappedFile* find_overwritten(const TensorSource& source) {
    const std::vector<MappedFile>& files = source.files();
    const auto found = std::find_if(files.begin(), files.end(),
                                    [](const MappedFile& file) { return file.was_overwritten(); });
    return found == files.end() ? nullptr : &*found;
}

HostTensor read_tensor(const TensorSource& source, const std::string& name) {
    const TensorInfo* tensor = source.find(name);
    check(tensor != nullptr, ErrorKind::bad_file, source.path().string(), ": tensor ", name,
          " is missing");
    check(converts_to_f32(tensor->type), ErrorKind::bad_file, source.path().string(), ": tensor ",
          name, " is of type ", type_name(tensor->type), ", expected numbers");
    HostTensor values(tensor->shape.ne);
    to_f32(tensor->type, tensor->bytes, values.data);
    return values;
}

}  // namespace flux2
