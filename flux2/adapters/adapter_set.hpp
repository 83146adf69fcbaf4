// The adapters of a request, opened and matched with a network: what happens to each of its
// tensors.
#pragma once

#include <flux2/flux2.hpp>
#include "adapters/adapter_file.hpp"
#include "adapters/formulas.hpp"
#include "networks/tensor_list.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace flux2 {

// A file as a request uses it. Files are opened once and shared by requests.
struct UsedAdapter {
    std::shared_ptr<const AdapterFile> file;
    Adapter use;
};

// What adapters do to the tensors of one network. Empty: nothing.
class AdapterSet {
  public:
    AdapterSet() = default;
    // Matches the modules for `part` with the tensors of the network. Throws bad_file, naming file,
    // module, found and expected, when one does not fit the network; bad_argument for filters or
    // strengths that are none, and for filters that leave no module of a file. `network` names the
    // network in messages: "FLUX.2 klein 4B". Modules that filters leave out or whose strength is 0
    // need not fit.
    AdapterSet(const std::vector<UsedAdapter>& adapters, Part part,
               const std::vector<ExpectedTensor>& tensors, const std::string& network);

    bool empty() const { return changes_.empty(); }
    // Whether the tensor is changed at all, and whether only by products of low rank.
    bool changes(const std::string& tensor) const { return changes_.contains(tensor); }
    bool is_low_rank(const std::string& tensor) const;
    // All pairs of a matrix stacked into one, strengths included. Only where is_low_rank.
    LowRankPair low_rank(const std::string& tensor) const;
    int64_t rank(const std::string& tensor) const;
    // Changes the values of a whole tensor [out, in], adapter after adapter.
    void apply(const std::string& tensor, std::span<float> values) const;

    // Key of this set for comparisons and caches: equal keys mean equal changes. Empty for an empty
    // set.
    const std::string& identity() const { return identity_; }
    // How many modules of the i-th adapter are used here.
    const std::vector<size_t>& n_used() const { return n_used_; }

  private:
    struct Change {
        const AdapterModule* module;
        const AdapterFile* file;
        float strength;
    };
    struct TensorChanges {
        int64_t n_out = 0, n_in = 0;  // of the tensor
        std::vector<Change> changes;
    };
    const TensorChanges& get(const std::string& tensor) const;

    std::vector<UsedAdapter> adapters_;  // keep the files of the modules
    std::map<std::string, TensorChanges> changes_;
    std::string identity_;
    std::vector<size_t> n_used_;
};

}  // namespace flux2
