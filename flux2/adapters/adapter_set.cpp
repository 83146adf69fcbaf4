#include "adapters/adapter_set.hpp"

#include "adapters/block_strengths.hpp"
#include "base/check.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <optional>
#include <regex>
#include <string_view>
#include <unordered_map>

namespace flux2 {
namespace {

using TensorIndex = std::unordered_map<std::string, const ExpectedTensor*>;

// "double_blocks.0.img_attn.qkv" of "double_blocks.0.img_attn.qkv.weight".
std::string module_name(const std::string& tensor) {
    for (const std::string_view ending : {".weight", ".scale"}) {
        if (tensor.ends_with(ending)) {
            return tensor.substr(0, tensor.size() - ending.size());
        }
    }
    return tensor;
}

// A vector is a matrix of one column here.
int64_t rows_of(const Shape& shape) {
    return shape.n_dims < 2 ? shape.ne[0] : shape.rows();
}

int64_t columns_of(const Shape& shape) {
    return shape.n_dims < 2 ? 1 : shape.ne[0];
}

std::optional<std::regex> parse_filter(const char* name, const std::string& text) {
    if (text.empty()) {
        return std::nullopt;
    }
    try {
        return std::regex(text);
    } catch (const std::regex_error& error) {
        fail(ErrorKind::bad_argument, name, " '", text,
             "' is no regular expression: ", error.what());
    }
}

// Which modules of a file a request uses, and how strongly.
class Selection {
  public:
    explicit Selection(const UsedAdapter& adapter)
        : include_(parse_filter("include", adapter.use.include)),
          exclude_(parse_filter("exclude", adapter.use.exclude)),
          blocks_(adapter.use.block_strengths),
          strength_(adapter.use.strength) {
        check(std::isfinite(strength_), ErrorKind::bad_argument, adapter.file->file(),
              ": strength ", strength_, " is no finite number; use one such as 0.8");
        const std::vector<AdapterModule>& modules = adapter.file->modules();
        check(std::any_of(modules.begin(), modules.end(),
                          [&](const AdapterModule& module) { return passes(module); }),
              ErrorKind::bad_argument, adapter.file->file(), ": include '", adapter.use.include,
              "' and exclude '", adapter.use.exclude, "' leave none of its ", modules.size(),
              " modules; their names are such as ", module_name(modules.front().tensor));
    }

    // 0 for a module that is left out.
    float strength_of(const AdapterModule& module) const {
        return passes(module) ? strength_ * blocks_.of(module.tensor) : 0.0f;
    }

  private:
    bool passes(const AdapterModule& module) const {
        const std::string name = module_name(module.tensor);
        return (!include_ || std::regex_search(name, *include_)) &&
               (!exclude_ || !std::regex_search(name, *exclude_));
    }

    std::optional<std::regex> include_, exclude_;
    BlockStrengths blocks_;
    float strength_;
};

// A kind of block whose tensors are numbered: "double_blocks." and how messages call it.
struct BlockKind {
    const char* prefix;
    const char* name;
};
constexpr BlockKind kBlockKinds[] = {
    {"double_blocks.", "double blocks"}, {"single_blocks.", "single blocks"}, {"blk.", "layers"}};

// The number behind the prefix; nothing for a name that does not begin with it.
std::optional<int64_t> block_number(const std::string& tensor, std::string_view prefix) {
    if (!tensor.starts_with(prefix)) {
        return std::nullopt;
    }
    int64_t number = 0;
    const char* begin = tensor.data() + prefix.size();
    const auto [end, error] = std::from_chars(begin, tensor.data() + tensor.size(), number);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

// "; it was made for FLUX.2 klein 9B", when the file shows it.
std::string origin(const AdapterFile& file, const std::string& network) {
    const std::string made_for = file.made_for();
    const bool tells = !made_for.empty() && made_for != "unknown" && made_for != network;
    return tells ? "; it was made for " + made_for : "";
}

[[noreturn]] void refuse_unknown(const AdapterFile& file, const AdapterModule& module,
                                 const std::vector<ExpectedTensor>& tensors,
                                 const std::string& network) {
    const std::string start = concat(file.file(), ": module ", module_name(module.tensor));
    const std::string advice = concat(origin(file, network), "; use a LoRA made for ", network);
    for (const BlockKind& kind : kBlockKinds) {
        const auto number = block_number(module.tensor, kind.prefix);
        int64_t last = -1;
        for (const ExpectedTensor& tensor : tensors) {
            last = std::max(last, block_number(tensor.name, kind.prefix).value_or(-1));
        }
        if (number && *number > last && last >= 0) {
            fail(ErrorKind::bad_file, start, " is for a larger model: ", network, " has ",
                 kind.name, " 0 to ", last, advice);
        }
    }
    fail(ErrorKind::bad_file, start, " is for a layer that ", network, " does not have", advice);
}

// A size of 0 is one that the file does not tell.
void check_fits(const AdapterFile& file, const AdapterModule& module, const Shape& shape,
                const std::string& network) {
    const int64_t rows = rows_of(shape), columns = columns_of(shape);
    check(module.n_shares > 0 && module.share >= 0 && module.share < module.n_shares,
          ErrorKind::internal, file.file(), ": share ", module.share, " of ", module.n_shares,
          " in ", module.stem);
    const int64_t n_out = module.n_out > 0 ? module.n_out * module.n_shares : rows;
    const int64_t n_in = module.n_in > 0 ? module.n_in : columns;
    check(n_out == rows && n_in == columns && rows % module.n_shares == 0, ErrorKind::bad_file,
          file.file(), ": module ", module_name(module.tensor), " is ", n_out, " x ", n_in, ", ",
          network, "'s is ", rows, " x ", columns, origin(file, network), "; use a LoRA made for ",
          network);
}

std::string identity_of(const UsedAdapter& adapter) {
    const Adapter& use = adapter.use;
    return concat(adapter.file->identity(), "strength ", std::setprecision(9), use.strength,
                  "\ninclude ", use.include, "\nexclude ", use.exclude, "\nblocks ",
                  use.block_strengths, "\n");
}

}  // namespace

AdapterSet::AdapterSet(const std::vector<UsedAdapter>& adapters, Part part,
                       const std::vector<ExpectedTensor>& tensors, const std::string& network) {
    TensorIndex index;
    for (const ExpectedTensor& tensor : tensors) {
        index.emplace(tensor.name, &tensor);
    }
    for (const UsedAdapter& adapter : adapters) {
        const Selection selection(adapter);
        size_t n_used = 0;
        for (const AdapterModule& module : adapter.file->modules()) {
            const float strength = module.part == part ? selection.strength_of(module) : 0.0f;
            if (strength == 0) {
                continue;
            }
            const auto found = index.find(module.tensor);
            if (found == index.end()) {
                refuse_unknown(*adapter.file, module, tensors, network);
            }
            const Shape& shape = found->second->shape;
            check_fits(*adapter.file, module, shape, network);
            TensorChanges& tensor = changes_[module.tensor];
            tensor.n_out = rows_of(shape);
            tensor.n_in = columns_of(shape);
            tensor.changes.push_back({&module, adapter.file.get(), strength});
            ++n_used;
        }
        n_used_.push_back(n_used);
        if (n_used > 0) {
            adapters_.push_back(adapter);
            identity_ += identity_of(adapter);
        }
    }
}

bool AdapterSet::is_low_rank(const std::string& tensor) const {
    const auto found = changes_.find(tensor);
    return found != changes_.end() &&
           std::all_of(found->second.changes.begin(), found->second.changes.end(),
                       [](const Change& change) { return flux2::is_low_rank(*change.module); });
}

int64_t AdapterSet::rank(const std::string& tensor) const {
    int64_t rank = 0;
    for (const Change& change : get(tensor).changes) {
        rank += change.module->rank;
    }
    return rank;
}

LowRankPair AdapterSet::low_rank(const std::string& tensor) const {
    const TensorChanges& whole = get(tensor);
    LowRankPair stacked;
    stacked.rank = rank(tensor);
    const auto n_columns = static_cast<size_t>(stacked.rank);
    stacked.up.resize(static_cast<size_t>(whole.n_out) * n_columns);
    size_t first_column = 0;
    for (const Change& change : whole.changes) {
        const LowRankPair pair = low_rank_pair(*change.module, change.file->file());
        stacked.down.insert(stacked.down.end(), pair.down.begin(), pair.down.end());
        // Zero outside the module's rows and columns.
        const auto n_rows = static_cast<size_t>(change.module->n_out);
        const auto first_row = static_cast<size_t>(change.module->share) * n_rows;
        const auto pair_rank = static_cast<size_t>(pair.rank);
        for (size_t row = 0; row < n_rows; ++row) {
            for (size_t i = 0; i < pair_rank; ++i) {
                stacked.up[(first_row + row) * n_columns + first_column + i] =
                    change.strength * pair.up[row * pair_rank + i];
            }
        }
        first_column += pair_rank;
    }
    return stacked;
}

void AdapterSet::apply(const std::string& tensor, std::span<float> values) const {
    const TensorChanges& whole = get(tensor);
    check(values.size() == static_cast<size_t>(whole.n_out * whole.n_in), ErrorKind::internal,
          "adapters for ", tensor, " are given ", values.size(), " values, not ", whole.n_out,
          " x ", whole.n_in);
    for (const Change& change : whole.changes) {
        const auto n = values.size() / static_cast<size_t>(change.module->n_shares);
        apply_module(*change.module, change.file->file(), change.strength,
                     values.subspan(static_cast<size_t>(change.module->share) * n, n));
    }
}

const AdapterSet::TensorChanges& AdapterSet::get(const std::string& tensor) const {
    const auto found = changes_.find(tensor);
    check(found != changes_.end(), ErrorKind::internal, "no adapter changes ", tensor);
    return found->second;
}

}  // namespace flux2
