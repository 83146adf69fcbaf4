#include "adapters/adapter_file.hpp"

#include "adapters/adapter_alpha.hpp"
#include "adapters/adapter_facts.hpp"
#include "adapters/adapter_key.hpp"
#include "adapters/adapter_kind.hpp"
#include "adapters/adapter_model.hpp"
#include "base/check.hpp"
#include "base/hash.hpp"
#include "checkpoints/recognise.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace flux2 {
namespace {

// The largest known have some thousands.
constexpr size_t kMaxTensors = 1 << 16;

// The tensors of a file that have one stem.
struct Stem {
    std::string_view name;
    std::optional<AdapterTarget> target;
    AdapterTensors tensors;
};

// All keys, in stems in the order of the file.
struct Keys {
    std::vector<Stem> stems;
    std::vector<UnusedKey> unused;
};

Keys read_keys(const TensorSource& source) {
    Keys keys;
    std::unordered_map<std::string_view, size_t> index;
    for (const TensorInfo& tensor : source.tensors()) {
        const auto key = split_adapter_key(tensor.name);
        if (!key || !key->role) {
            keys.unused.push_back(
                {tensor.name,
                 key ? key->reason : "no kind of adapter that is known has such a key"});
            continue;
        }
        const auto [at, is_new] = index.try_emplace(key->stem, keys.stems.size());
        if (is_new) {
            keys.stems.push_back({key->stem, find_adapter_target(key->stem), {}});
        }
        if (!keys.stems[at->second].tensors.emplace(*key->role, &tensor).second) {
            keys.unused.push_back(
                {tensor.name, concat("its module has another ", to_string(*key->role), " too")});
        }
    }
    return keys;
}

bool is_zero(const TensorInfo& tensor) {
    return std::all_of(tensor.bytes.begin(), tensor.bytes.end(),
                       [](std::byte b) { return b == std::byte{0}; });
}

// Puts the tensors of stems together to modules, and lists those that are not used.
class ModuleBuilder {
  public:
    ModuleBuilder(const TensorSource& source, std::vector<UnusedKey>& unused)
        : file_(source.path().string()), alphas_(source), unused_(unused) {}

    void add(Stem stem) {
        take_bias(stem);
        if (stem.tensors.empty()) {
            return;
        }
        if (!stem.target) {
            reject(stem.tensors, is_flux1_module(stem.name)
                                     ? "FLUX.1 has such a module, but FLUX.2 does not"
                                     : "no part of FLUX.2 has such a module");
            return;
        }
        const KindChoice choice = choose_kind(stem.tensors);
        if (!choice.kind) {
            reject(stem.tensors, choice.reason);
            return;
        }
        const bool whole =
            *choice.kind == AdapterKind::diff || *choice.kind == AdapterKind::set_weight;
        if (is_norm_tensor(stem.target->tensor) && !whole) {
            reject(stem.tensors, concat("a ", to_string(*choice.kind), " cannot change a norm"));
            return;
        }
        modules_.push_back(build(stem, *choice.kind));
    }

    // All modules but those whose rows another one has.
    std::vector<AdapterModule> take() {
        std::map<std::string, std::string> whole;  // stems by tensors
        for (const AdapterModule& module : modules_) {
            if (module.n_shares == 1) {
                whole.try_emplace(module.tensor, module.stem);
            }
        }
        std::map<std::pair<std::string, int>, std::string> first;
        std::vector<AdapterModule> kept;
        for (AdapterModule& module : modules_) {
            // Trainers leave untrained shares beside the whole.
            const auto fused = module.n_shares > 1 ? whole.find(module.tensor) : whole.end();
            if (fused != whole.end()) {
                reject(module.tensors, concat(fused->second, " is for the same rows"));
                continue;
            }
            const auto [same, is_first] =
                first.try_emplace({module.tensor, module.share}, module.stem);
            if (is_first) {
                kept.push_back(std::move(module));
            } else {
                reject(module.tensors, concat(same->second, " is for the same rows"));
            }
        }
        return kept;
    }

  private:
    // The networks have no biases: zeros are ignored, others are not used.
    void take_bias(Stem& stem) {
        const auto bias = stem.tensors.find(AdapterRole::diff_b);
        if (bias == stem.tensors.end()) {
            return;
        }
        if (!is_zero(*bias->second)) {
            unused_.push_back({bias->second->name, "it changes a bias, and FLUX.2 has none"});
        }
        stem.tensors.erase(bias);
    }

    void reject(const AdapterTensors& tensors, const std::string& reason) {
        for (const auto& [role, tensor] : tensors) {
            unused_.push_back({tensor->name, reason});
        }
    }

    AdapterModule build(const Stem& stem, AdapterKind kind) {
        AdapterModule module;
        module.part = stem.target->part;
        module.tensor = stem.target->tensor;
        module.stem = stem.name;
        module.kind = kind;
        module.share = stem.target->share;
        module.n_shares = stem.target->n_shares;
        module.swap_halves = stem.target->swap_halves;
        for (const auto& [role, tensor] : stem.tensors) {
            if (uses(kind, role)) {
                module.tensors.emplace(role, tensor);
            } else {
                unused_.push_back({tensor->name, concat("its module is a ", to_string(kind),
                                                        ", which has no ", to_string(role))});
            }
        }
        measure(module, file_);
        alphas_.apply(module);
        return module;
    }

    std::string file_;
    AlphaRules alphas_;
    std::vector<UnusedKey>& unused_;
    std::vector<AdapterModule> modules_;
};

// Throws, saying what the file is, unless it is an adapter.
void check_is_adapter(const TensorSource& source) {
    const std::string file = source.path().string();
    const size_t n = source.tensors().size();
    check(n > 0, ErrorKind::bad_file, file, ": holds no tensors; it is not a LoRA");
    check(n <= kMaxTensors, ErrorKind::bad_file, file, ": holds ", n,
          " tensors, a LoRA has some thousands at most; it is broken or not a LoRA");
    if (is_adapter(source)) {
        return;
    }
    const Identity identity = identify(source);
    if (!identity.parts.empty()) {
        const Part part = identity.parts.front().part;
        fail(ErrorKind::unsupported, file, ": is not a LoRA but a whole ", to_string(part),
             "; give it with ", facts_of(part).setting);
    }
    // Without the advice for those who look for a part of a model.
    check(identity.other_kind.empty(), ErrorKind::unsupported, file, ": is not a LoRA: it ",
          identity.other_kind.substr(0, identity.other_kind.find(';')), "; use a LoRA for FLUX.2");
    fail(ErrorKind::bad_file, file, ": is not a LoRA that this program knows (", n,
         n == 1 ? " tensor, " : " tensors, the first is ", source.tensors().front().name,
         "); use a LoRA for FLUX.2");
}

// Throws when the file was made for another model.
void check_model(const std::string& file, const std::string& made_for,
                 const std::vector<AdapterModule>& modules, const std::vector<UnusedKey>& unused) {
    constexpr const char* kAdvice = "; use a LoRA for FLUX.2";
    const bool sure = made_for.starts_with("FLUX.2") && !made_for.ends_with(")");
    if (sure) {
        return;
    }
    const std::string evidence = flux1_evidence(modules);
    check(evidence.empty(), ErrorKind::unsupported, file, ": made for FLUX.1: ", evidence, kAdvice);
    for (const UnusedKey& key : unused) {
        const auto split = split_adapter_key(key.key);
        const std::string_view stem = split ? split->stem : std::string_view(key.key);
        check(!is_flux1_module(stem), ErrorKind::unsupported, file, ": made for FLUX.1: it is for ",
              stem, ", which FLUX.2 does not have", kAdvice);
        const char* other = other_model_of(stem);
        check(other == nullptr, ErrorKind::unsupported, file, ": made for ",
              other == nullptr ? "" : other, ": it is for ", stem, kAdvice);
    }
}

std::string kind_in_words(const AdapterModule& module) {
    return concat(to_string(module.kind), module.has(AdapterRole::magnitude) ? " (DoRA)" : "");
}

std::string identity_of(const TensorSource& source, const std::vector<AdapterModule>& modules) {
    WideHash scales;
    for (const AdapterModule& module : modules) {
        const double of_module[] = {module.factor, module.constraint};
        scales.add(std::as_bytes(std::span(of_module)));
    }
    return concat(flux2::identity(source), "scales ", scales.hex(), "\n");
}

}  // namespace

AdapterFile AdapterFile::open(const std::filesystem::path& path) {
    return AdapterFile(TensorSource::open(path));
}

AdapterFile::AdapterFile(TensorSource source) : source_(std::move(source)) {
    check_is_adapter(source_);
    Keys keys = read_keys(source_);
    unused_ = std::move(keys.unused);
    ModuleBuilder builder(source_, unused_);
    for (Stem& stem : keys.stems) {
        builder.add(std::move(stem));
    }
    modules_ = builder.take();
    made_for_ = flux2::made_for(modules_);
    check_model(file(), made_for_, modules_, unused_);
    check(!modules_.empty(), ErrorKind::bad_file, file(), ": nothing in it can be used; ",
          unused_.empty() ? "all of its changes are zero"
                          : concat(unused_.front().key, ": ", unused_.front().reason));
    identity_ = identity_of(source_, modules_);
    dialect_ = adapter_dialect(modules_.front().stem);
    facts_ = adapter_facts(source_.metadata());
    trained_on_base_ = flux2::trained_on_base(source_.metadata());
}

std::string AdapterFile::kinds() const {
    std::vector<std::string> kinds;
    for (const AdapterModule& module : modules_) {
        const std::string kind = kind_in_words(module);
        if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
            kinds.push_back(kind);
        }
    }
    std::string text;
    for (const std::string& kind : kinds) {
        text += (text.empty() ? "" : ", ") + kind;
    }
    return text;
}

std::string AdapterFile::ranks() const {
    constexpr size_t kMaxListed = 6;
    std::set<int64_t> ranks;
    for (const AdapterModule& module : modules_) {
        if (module.rank > 0) {
            ranks.insert(module.rank);
        }
    }
    if (ranks.size() > kMaxListed) {
        return concat(*ranks.begin(), " to ", *ranks.rbegin());
    }
    std::string text;
    for (const int64_t rank : ranks) {
        text += (text.empty() ? "" : ", ") + std::to_string(rank);
    }
    return text;
}

bool is_adapter(const TensorSource& source) {
    return std::any_of(source.tensors().begin(), source.tensors().end(), [](const auto& tensor) {
        const auto key = split_adapter_key(tensor.name);
        return key && key->decisive;
    });
}

}  // namespace flux2
