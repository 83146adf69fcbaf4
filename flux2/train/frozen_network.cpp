#include "train/frozen_network.hpp"

#include "base/check.hpp"
#include "compute/operands.hpp"
#include "compute/plain/token_nodes.hpp"
#include "networks/tensor_list.hpp"

#include <algorithm>

namespace flux2 {
namespace {

// Types that kernels of devices unpack for every product.
bool kernels_take(TensorType type) {
    return !is_quantized(type) || own::can_unpack(static_cast<ggml_type>(type));
}

// On a GPU, quantised matrices of other types become BF16 when they are loaded.
WeightOptions plain(const Backend& backend, const Checkpoint& checkpoint, WeightOptions options) {
    options.repack = false;
    if (backend.operations() != Operations::cuda) {
        return options;
    }
    check(!options.type || kernels_take(*options.type), ErrorKind::unsupported,
          "training on a GPU takes no matrices of type ",
          options.type ? type_name(*options.type) : "", "; use ", Setting::type, " Q8_0 or BF16");
    const auto& tensors = checkpoint.tensors();
    options.unpack =
        !options.type && std::any_of(tensors.begin(), tensors.end(),
                                     [](const auto& t) { return !kernels_take(t.type()); });
    return options;
}

}  // namespace

FrozenNetwork::FrozenNetwork(const Backend& backend, const Checkpoint& checkpoint,
                             const TransformerSizes& sizes, const WeightOptions& options)
    : weights_(backend, checkpoint, tensor_list(sizes), plain(backend, checkpoint, options)) {
    check(sizes.head_dim % (2 * Rope::kMaxAxes) == 0, ErrorKind::bad_file, checkpoint.file(),
          ": head size ", sizes.head_dim, " cannot be shared by four position axes");
    check(backend.operations() != Operations::cuda ||
              own::nodes_support(sizes.head_dim, sizes.hidden),
          ErrorKind::unsupported, checkpoint.file(), ": there are no kernels for heads of ",
          sizes.head_dim, " and tokens of ", sizes.hidden, " values; use ", Setting::device,
          " CPU");
    parts_ = load_network([this](size_t) -> Weights& { return weights_; }, sizes);
    weights_.load();
}

ggml_tensor* FrozenNetwork::matrix(const std::string& name) const {
    return weights_.find(name + ".weight");
}

}  // namespace flux2
