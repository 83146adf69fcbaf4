// The three parts of a model, found in a folder.
#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "base/log.hpp"
#include "checkpoints/recognise.hpp"
#include "pipeline/model_files.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace flux2 {
namespace fs = std::filesystem;
namespace {

// A file that could not be read; its part may be unknown.
struct Failure {
    std::optional<Part> part;
    Error error;
};

struct Contents {
    fs::path folder;
    std::vector<FileInfo> parts;
    std::vector<Failure> failures;
};

// Failures are collected instead of thrown: they matter only when there is no other file for the
// part.
void keep_failure(Contents& contents, std::optional<Part> part, const Error& error) {
    if (error.kind() != ErrorKind::bad_file && error.kind() != ErrorKind::unsupported) {
        throw error;
    }
    log(LogLevel::debug, concat("left out: ", error.what()));
    contents.failures.push_back({part, error});
}

void add_file(Contents& contents, const fs::path& path) {
    Identity identity;
    try {
        identity = identify(TensorSource::open(path));
    } catch (const Error& error) {
        keep_failure(contents, std::nullopt, error);
        return;
    }
    if (identity.parts.empty()) {
        log(LogLevel::debug,
            concat(path.string(), ": skipped; ",
                   identity.other_kind.empty() ? "is no part of FLUX.2" : identity.other_kind));
    }
    for (const RecognisedPart& part : identity.parts) {
        try {
            contents.parts.push_back(describe(Checkpoint::open(path, part.part)));
        } catch (const Error& error) {
            keep_failure(contents, part.part, error);
        }
    }
}

std::vector<fs::path> folders_in(const fs::path& folder) {
    std::vector<fs::path> folders;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        std::error_code ignored;
        if (!entry->path().filename().string().starts_with('.') &&
            fs::is_directory(entry->path(), ignored)) {
            folders.push_back(entry->path());
        }
    }
    std::sort(folders.begin(), folders.end());
    return folders;
}

void add_folder(Contents& contents, const fs::path& folder) {
    for (const fs::path& path : checkpoints_in(folder)) {
        add_file(contents, path);
    }
}

// The folder, those in it, and those in its split_files, where Comfy-Org keeps parts.
Contents read_folder(const fs::path& folder) {
    Contents contents{folder, {}, {}};
    std::vector<fs::path> inner = folders_in(folder);
    const std::vector<fs::path> split = folders_in(folder / "split_files");
    inner.insert(inner.end(), split.begin(), split.end());
    add_folder(contents, folder);
    for (const fs::path& path : inner) {
        try {
            add_folder(contents, path);
        } catch (const Error& error) {
            log(LogLevel::debug, concat("left out: ", error.what()));
        }
    }
    return contents;
}

using Candidates = std::vector<const FileInfo*>;
using Rank = std::array<int, 4>;  // compared from the first on; the smallest is best

Candidates parts_of(const Contents& contents, Part part) {
    Candidates parts;
    for (const FileInfo& info : contents.parts) {
        if (is(info, part)) {
            parts.push_back(&info);
        }
    }
    return parts;
}

// As seen from the folder.
std::string relative_name(const Contents& contents, const fs::path& path) {
    const std::string name = path.lexically_relative(contents.folder).string();
    return name.empty() || name.starts_with("..") ? path.string() : name;
}

// "klein-4b.gguf (FLUX.2 klein 4B, Q8_0)"
std::string label(const Contents& contents, const FileInfo& info) {
    return concat(relative_name(contents, info.path), " (", info.name, ", ",
                  info.types.substr(0, info.types.find(" x ")), ")");
}

int format_rank(const FileInfo& info) {
    return info.format == "GGUF" ? 0 : 1;
}

int naming_rank(const FileInfo& info) {
    return info.naming == "diffusers" ? 1 : 0;
}

int variant_rank(const FileInfo& info) {
    constexpr std::array<std::string_view, 4> kOrder = {"klein", "kv", "base", "dev"};
    return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), info.variant) - kOrder.begin());
}

// The best of them, null when there are none. Throws when two are equally good.
const FileInfo* choose(const Contents& contents, Part part, Candidates parts,
                       const std::function<Rank(const FileInfo&)>& rank) {
    if (parts.empty()) {
        return nullptr;
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [&](const FileInfo* a, const FileInfo* b) { return rank(*a) < rank(*b); });
    if (parts.size() > 1 && rank(*parts[0]) == rank(*parts[1])) {
        fail(ErrorKind::bad_file, contents.folder.string(), ": ", label(contents, *parts[0]),
             " and ", label(contents, *parts[1]), " fit equally well; choose one with ",
             facts_of(part).setting, " FILE");
    }
    return parts.front();
}

// For how many kinds of parts the folder has files but none that fits this transformer.
int n_unserved(const Contents& contents, const FileInfo& transformer) {
    int n = 0;
    for (const Part part : {Part::text_encoder, Part::vae}) {
        const Candidates parts = parts_of(contents, part);
        const bool served = std::any_of(parts.begin(), parts.end(), [&](const FileInfo* info) {
            return !misfit(transformer, *info);
        });
        n += !parts.empty() && !served ? 1 : 0;
    }
    return n;
}

[[noreturn]] void fail_without_variant(const Contents& contents, const std::string& variant) {
    std::string present;
    for (const FileInfo* part : parts_of(contents, Part::transformer)) {
        present += concat(present.empty() ? "" : ", ", part->variant, " (",
                          relative_name(contents, part->path), ")");
    }
    fail(ErrorKind::bad_file, contents.folder.string(), ": holds no transformer of variant ",
         variant, ", only ", present, "; to run one as ", variant, " all the same, give it with ",
         Setting::transformer, " FILE");
}

// When no variant is named any is accepted, distilled ones first.
const FileInfo* choose_transformer(const Contents& contents, const std::string& variant) {
    Candidates parts = parts_of(contents, Part::transformer);
    if (!variant.empty() && !parts.empty()) {
        std::erase_if(parts, [&](const FileInfo* part) { return part->variant != variant; });
        if (parts.empty()) {
            fail_without_variant(contents, variant);
        }
    }
    return choose(contents, Part::transformer, parts, [&](const FileInfo& info) {
        return Rank{variant_rank(info), n_unserved(contents, info), format_rank(info),
                    naming_rank(info)};
    });
}

const FileInfo* choose_partner(const Contents& contents, Part part, const FileInfo* transformer) {
    Candidates parts = parts_of(contents, part);
    std::string reason;
    if (transformer != nullptr) {
        std::erase_if(parts, [&](const FileInfo* info) {
            const auto problem = misfit(*transformer, *info);
            reason = problem.value_or(reason);
            return problem.has_value();
        });
    }
    if (parts.empty() && !reason.empty()) {
        log(LogLevel::warning, reason);
    }
    return choose(contents, part, parts, [](const FileInfo& info) {
        return Rank{format_rank(info), naming_rank(info)};
    });
}

// The path of the chosen part, empty when there is none. Throws the failure of a file that may be
// the missing part.
fs::path path_of(const Contents& contents, Part part, const FileInfo* chosen) {
    if (chosen != nullptr) {
        return chosen->path;
    }
    for (const auto& known : {std::optional(part), std::optional<Part>()}) {
        for (const Failure& failure : contents.failures) {
            if (failure.part == known) {
                throw failure.error;
            }
        }
    }
    return {};
}

std::string describe_choice(const Contents& contents, const FileInfo* transformer,
                            const ModelFiles& files) {
    std::string line = transformer != nullptr ? label(contents, *transformer) : "no transformer";
    line += ", ";
    line += files.text_encoder.empty() ? "no text encoder"
                                       : relative_name(contents, files.text_encoder);
    line += ", ";
    line += files.vae.empty() ? "no autoencoder" : relative_name(contents, files.vae);
    const size_t n = parts_of(contents, Part::transformer).size();
    if (n > 1) {
        line += concat(", over ", n - 1, " other transformer", n > 2 ? "s" : "");
    }
    return line;
}

// Replaces all files of this part by the given one.
void replace_parts(Contents& contents, Part part, const fs::path& given) {
    if (given.empty()) {
        return;
    }
    FileInfo info = describe(Checkpoint::open(given, part));
    check(is(info, part), ErrorKind::bad_file, given.string(), ": is of kind ", info.part, "; ",
          facts_of(part).setting, " takes the ", to_string(part));
    std::erase_if(contents.parts, [&](const FileInfo& other) { return is(other, part); });
    contents.parts.push_back(std::move(info));
}

void check_folder(const fs::path& folder) {
    std::error_code ignored;
    check(
        fs::exists(folder, ignored), ErrorKind::bad_file, folder.string(),
        ": no such folder; one with a transformer, a text encoder and an autoencoder is expected");
    check(fs::is_directory(folder, ignored), ErrorKind::bad_argument, folder.string(),
          ": is a file, not a folder of model files; give a transformer with ",
          Setting::transformer);
}

}  // namespace

FoundModel find_model(const fs::path& folder, const std::string& variant, const ModelFiles& given) {
    if (!variant.empty()) {
        parse_variant(variant);
    }
    check_folder(folder);
    Contents contents = read_folder(folder);
    replace_parts(contents, Part::transformer, given.transformer);
    replace_parts(contents, Part::text_encoder, given.text_encoder);
    replace_parts(contents, Part::vae, given.vae);
    check(!contents.parts.empty() || !contents.failures.empty(), ErrorKind::bad_file,
          folder.string(),
          ": holds no part of FLUX.2; a transformer, a text encoder and an autoencoder are "
          "expected, as .gguf or .safetensors files or as a diffusers folder");

    const FileInfo* transformer =
        choose_transformer(contents, given.transformer.empty() ? variant : "");
    ModelFiles files = given;
    if (files.transformer.empty()) {
        files.transformer = path_of(contents, Part::transformer, transformer);
    }
    if (files.text_encoder.empty()) {
        files.text_encoder = path_of(contents, Part::text_encoder,
                                     choose_partner(contents, Part::text_encoder, transformer));
    }
    if (files.vae.empty()) {
        files.vae = path_of(contents, Part::vae, choose_partner(contents, Part::vae, transformer));
    }
    return {files, describe_choice(contents, transformer, files)};
}

}  // namespace flux2
