// Every graph that the networks of FLUX.2 are computed with, laid out at their published sizes. The
// files have no values and only a few blocks, since all blocks of a network are alike.
#pragma once

#include "adapters/adapter_set.hpp"
#include "checkpoints/checkpoint.hpp"
#include "compute/backend.hpp"
#include "compute/graph.hpp"
#include "formats/tensor_type.hpp"
#include "networks/sizes.hpp"
#include "support/support.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace flux2::test {

class EmptyNetworks {
  public:
    EmptyNetworks();

    using Visit = std::function<void(const std::string& network, const Graph& graph)>;
    // With matrices of this type; unset: as they are in the files, which are of several. The
    // backend measures.
    void visit_graphs(const Backend& backend, std::optional<TensorType> type,
                      const Visit& visit) const;
    // How many different networks that visits: names without what follows a comma.
    size_t n_networks() const;

  private:
    struct TransformerFile {
        std::string name;
        TransformerSizes sizes;
        Checkpoint checkpoint;
        std::shared_ptr<const AdapterSet> adapters;  // of low rank, for every matrix of the blocks
    };
    struct TextEncoderFile {
        std::string name;
        TextEncoderSizes sizes;
        Checkpoint checkpoint;
    };
    struct VaeFile {
        std::string name;
        VaeSizes sizes;
        Checkpoint checkpoint;
    };
    struct TinyAutoencoderFile {
        std::string name;
        TinyAutoencoderSizes sizes;
        Checkpoint checkpoint;
    };

    void add(const std::string& name, const TransformerSizes& sizes);
    void add(const std::string& name, const TextEncoderSizes& sizes);
    void add(const std::string& name, const VaeSizes& sizes);
    void visit_transformer(const TransformerFile& file, const Backend& backend,
                           std::optional<TensorType> type, const Visit& visit) const;

    TemporaryFolder folder_;
    std::vector<TransformerFile> transformers_;
    std::vector<TextEncoderFile> text_encoders_;
    std::vector<VaeFile> vaes_;
    std::vector<TinyAutoencoderFile> tiny_autoencoders_;
};

}  // namespace flux2::test
