#include "train/frozen_network.hpp"

#include "base/check.hpp"
#include "compute/operands.hpp"
#include "networks/tensor_list.hpp"

namespace flux2 {
namespace {

WeightOptions plain(WeightOptions options) {
    options.repack = false;
    return options;
}

}  // namespace

FrozenNetwork::FrozenNetwork(const Backend& backend, const Checkpoint& checkpoint,
                             const TransformerSizes& sizes, const WeightOptions& options)
    : weights_(backend, checkpoint, tensor_list(sizes), plain(options)) {
    check(sizes.head_dim % (2 * Rope::kMaxAxes) == 0, ErrorKind::bad_file, checkpoint.file(),
          ": head size ", sizes.head_dim, " cannot be shared by four position axes");
    parts_ = load_network([this](size_t) -> Weights& { return weights_; }, sizes);
    weights_.load();
}

ggml_tensor* FrozenNetwork::matrix(const std::string& name) const {
    return weights_.find(name + ".weight");
}

}  // namespace flux2
