#include "train/continued_adapter.hpp"

#include "adapters/adapter_kind.hpp"
#include "adapters/adapter_set.hpp"
#include "base/check.hpp"
#include "networks/tensor_list.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace flux2 {
namespace {

std::string without_weight(const std::string& tensor) {
    return tensor.substr(0, tensor.rfind(".weight"));
}

// Throws for modules that pairs beside the transformer's matrices cannot stand for.
void check_modules(const AdapterFile& file) {
    for (const AdapterModule& module : file.modules()) {
        check(module.part == Part::transformer, ErrorKind::unsupported, file.file(), ": ",
              module.stem, " changes the ", to_string(module.part),
              ", which is not trained; continue a LoRA of the transformer alone");
        check(is_low_rank(module), ErrorKind::unsupported, file.file(), ": ", module.stem, " is a ",
              to_string(module.kind), module.has(AdapterRole::magnitude) ? " with DoRA" : "",
              "; only plain LoRAs can be continued, begin anew or convert it to one");
    }
}

// The alpha that all pairs of the file have at this rank; unset where they differ.
std::optional<double> common_alpha(const AdapterFile& file, int64_t rank) {
    const std::vector<AdapterModule>& modules = file.modules();
    const double factor = modules.front().factor;
    const bool is_common =
        factor > 0 && std::all_of(modules.begin(), modules.end(), [&](const AdapterModule& module) {
            return module.factor == factor;
        });
    return is_common ? std::optional(factor * static_cast<double>(rank)) : std::nullopt;
}

// B of the file counts with its own scale, that of the adapter with the adapter's.
void fill(TrainedAdapter& adapter, const TrainedModule& module, const LowRankPair& pair) {
    const std::span<float> values = adapter.parameters();
    std::copy(pair.down.begin(), pair.down.end(),
              values.begin() + static_cast<std::ptrdiff_t>(module.a.first));
    const auto rank = static_cast<size_t>(adapter.rank());
    const auto pair_rank = static_cast<size_t>(pair.rank);
    for (size_t i = 0; i < pair.up.size(); ++i) {
        values[module.b.first + i / pair_rank * rank + i % pair_rank] =
            pair.up[i] / adapter.scale();
    }
}

}  // namespace

TrainedAdapter continue_adapter(const std::filesystem::path& path, const TransformerSizes& sizes,
                                const std::string& network, AdapterChoice choice) {
    check(choice.kind == NetworkKind::lora, ErrorKind::unsupported, path.string(),
          ": only LoRAs can be continued, and a LoKr is asked for; begin it without a file");
    const auto file = std::make_shared<const AdapterFile>(AdapterFile::open(path));
    check_modules(*file);
    Adapter use;
    use.file = path;
    const AdapterSet set({{file, use}}, Part::transformer, tensor_list(sizes), network);
    std::set<std::string> names;
    int64_t rank = 0;
    for (const AdapterModule& module : file->modules()) {
        names.insert(without_weight(module.tensor));
        rank = std::max(rank, set.rank(module.tensor));
    }
    check(choice.rank.value_or(rank) == rank, ErrorKind::bad_argument, file->file(), ": has rank ",
          rank, ", and ", choice.rank.value_or(0), " is asked for; leave the rank out or ask for ",
          rank);
    choice.rank = rank;
    if (!choice.alpha) {
        choice.alpha = common_alpha(*file, rank);
    }
    const bool has_patterns = !choice.include.empty() || !choice.exclude.empty();
    if (!has_patterns) {
        choice.matrices = names;
    }
    TrainedAdapter adapter(sizes, choice);
    for (const TrainedModule& module : adapter.modules()) {
        if (names.erase(module.name) > 0) {
            fill(adapter, module, set.low_rank(module.name + ".weight"));
        }
    }
    check(names.empty(), ErrorKind::bad_argument, file->file(), ": changes ",
          names.empty() ? "" : *names.begin(), ", which ",
          has_patterns
              ? "the patterns do not choose, so that its effect would be lost; choose it too"
              : "cannot be trained; continue a LoRA of the blocks");
    return adapter;
}

}  // namespace flux2
