#include "pipeline/request_adapters.hpp"

#include "base/check.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace flux2 {
namespace {

constexpr size_t kShownKeys = 5;

std::string plural(size_t n, const char* what) {
    return concat(n, " ", what, n == 1 ? "" : "s");
}

// "x.safetensors: 3 keys are not used: lora_unet_a (no such module), ..."
std::string unused_in_words(const AdapterFile& file) {
    const std::vector<UnusedKey>& unused = file.unused();
    std::string text = concat(file.file(), ": ", plural(unused.size(), "key"),
                              unused.size() == 1 ? " is" : " are", " not used: ");
    for (size_t i = 0; i < std::min(unused.size(), kShownKeys); ++i) {
        text += concat(i == 0 ? "" : ", ", unused[i].key, " (", unused[i].reason, ")");
    }
    if (unused.size() > kShownKeys) {
        text += concat(", and ", unused.size() - kShownKeys, " more");
    }
    return text;
}

// An adapter may hold modules for a part that is not there, such as a text encoder's when features
// come from a file.
bool has_modules_for(const AdapterFile& file, Part part) {
    return std::any_of(file.modules().begin(), file.modules().end(),
                       [&](const AdapterModule& module) { return module.part == part; });
}

void report_use(const UsedAdapter& adapter, size_t n_used, const Model& model) {
    const AdapterFile& file = *adapter.file;
    const std::string ranks = file.ranks();
    log(LogLevel::info, concat(file.file(), ": ", file.kinds(), ranks.empty() ? "" : " of rank ",
                               ranks, ", ", n_used, " of ", plural(file.modules().size(), "module"),
                               ", strength ", adapter.use.strength));
    if (!file.unused().empty()) {
        log(LogLevel::warning, unused_in_words(file));
    }
    const std::optional<bool> on_base = file.trained_on_base();
    if (on_base && *on_base == model.defaults.distilled) {
        log(LogLevel::info, concat(file.file(), ": was trained on a ",
                                   *on_base ? "base" : "distilled", " model and is used with a ",
                                   *on_base ? "distilled" : "base", " one: its effect may differ"));
    }
}

std::shared_ptr<const AdapterSet> or_null(AdapterSet set) {
    return set.empty() ? nullptr : std::make_shared<const AdapterSet>(std::move(set));
}

}  // namespace

std::string identity_of(const std::shared_ptr<const AdapterSet>& adapters) {
    return adapters ? adapters->identity() : "";
}

std::shared_ptr<const AdapterFile> AdapterStore::open(const std::filesystem::path& path) {
    // Opening reads the header only; the file that is held already is kept when it is the same.
    auto opened = std::make_shared<const AdapterFile>(AdapterFile::open(path));
    for (const std::shared_ptr<const AdapterFile>& held : files_) {
        if (held->identity() == opened->identity()) {
            return held;
        }
    }
    files_.push_back(opened);
    return opened;
}

AdapterSets AdapterStore::resolve(const Request& request, const Model& model) {
    if (request.adapters.empty()) {
        files_.clear();
        reported_.clear();
        return {};
    }
    std::vector<UsedAdapter> adapters;
    for (const Adapter& adapter : request.adapters) {
        adapters.push_back({open(adapter.file), adapter});
        const AdapterFile& file = *adapters.back().file;
        check(!request.strict_adapters || file.unused().empty(), ErrorKind::bad_file,
              file.unused().empty() ? "" : unused_in_words(file));
    }
    std::erase_if(files_, [&](const std::shared_ptr<const AdapterFile>& held) {
        return std::none_of(adapters.begin(), adapters.end(),
                            [&](const UsedAdapter& used) { return used.file == held; });
    });
    AdapterSet transformer(adapters, Part::transformer, tensor_list(model.sizes), model.info.name);
    AdapterSet text_encoder;
    if (model.text_encoder) {
        const TextEncoderSizes sizes = read_text_encoder_sizes(*model.text_encoder);
        check(sizes.family == TextFamily::qwen3 ||
                  std::none_of(adapters.begin(), adapters.end(),
                               [](const UsedAdapter& used) {
                                   return has_modules_for(*used.file, Part::text_encoder);
                               }),
              ErrorKind::unsupported, "adapters of Mistral are not supported, only Qwen3's; use ",
              "one for the transformer alone");
        text_encoder = AdapterSet(adapters, Part::text_encoder, tensor_list(sizes),
                                  model.text_encoder->file());
    }
    std::vector<size_t> n_used(adapters.size());
    for (size_t i = 0; i < adapters.size(); ++i) {
        n_used[i] = transformer.n_used()[i] + (model.text_encoder ? text_encoder.n_used()[i] : 0);
        check(n_used[i] > 0 || adapters[i].use.strength == 0, ErrorKind::bad_argument,
              adapters[i].file->file(), ": none of its ",
              plural(adapters[i].file->modules().size(), "module"),
              " is used with these filters and this model; change the filters, or leave it out");
    }
    const std::string use = transformer.identity() + text_encoder.identity();
    if (use != reported_) {
        for (size_t i = 0; i < adapters.size(); ++i) {
            report_use(adapters[i], n_used[i], model);
        }
        reported_ = use;
    }
    return {or_null(std::move(transformer)), or_null(std::move(text_encoder))};
}

}  // namespace flux2
