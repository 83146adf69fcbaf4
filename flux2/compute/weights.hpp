// The tensors of one model on a device: first declared by name and checked against the file, then
// loaded in one go. Nothing of a graph exists before every shape is known to be right.
#pragma once

#include "base/byte_budget.hpp"
#include "base/host_tensor.hpp"
#include "compute/backend.hpp"
#include "compute/block_stream.hpp"
#include "compute/low_rank.hpp"
#include "compute/tensor_context.hpp"
#include "formats/tensor_type.hpp"
#include "networks/tensor_list.hpp"

#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <semaphore>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace flux2 {

class AdapterSet;
class Checkpoint;
struct ModelTensor;

struct WeightOptions {
    // The type of matrices in memory; unset: as the file has them. F8 and weights with scales in
    // other tensors become BF16; these and BF16 become F16 where BF16 is slow
    // (Backend::multiplies_bf16), as on Arm CPUs without instructions for it. F64 becomes F32.
    std::optional<TensorType> type;
    // Blocks stay in RAM and are copied to the device in turn (compute/block_stream).
    bool stream_blocks = false;
    // With kernels of CUDA (Operations::cuda): quantised and F16 matrices become BF16. It pays on
    // devices of which DeviceAbilities::unpacks_matrices is true.
    bool unpack = false;
    // On a CPU: matrices are repacked where its kernels are faster then and RAM suffices. Else, and
    // where a multiply of ours reads them as they are (compute/cpu/tile_linear), they stay in the
    // mapped file.
    bool repack = true;
    // What changes the tensors; null: nothing. Tensors that it changes by more than a pair of low
    // rank are held unquantised and changed when they are loaded.
    std::shared_ptr<const AdapterSet> adapters = nullptr;
};

struct WeightMemory {
    MemoryUse own;        // allocated
    uint64_t mapped = 0;  // used in the mapped file; the system may drop these pages
    uint64_t loading =
        0;  // temporarily, in RAM, while tensors are converted or adapters change them
};

// Tensors are borrowed from here; they have data once load() returned. The checkpoint must live as
// long, since weights that need no conversion stay in its mapped files.
class Weights {
  public:
    // `tensors` are those that the network may have, with their shapes.
    Weights(const Backend& backend, const Checkpoint& checkpoint,
            const std::vector<ExpectedTensor>& tensors, const WeightOptions& options);

    // Declares a tensor of the list. Throws bad_file, naming file and tensor, when the file has
    // none or one of another shape.
    ggml_tensor* matrix(const std::string& name);
    // A matrix of which single rows are looked up: stays in RAM, whatever the device.
    ggml_tensor* table(const std::string& name);
    // A bias, a norm: always F32.
    ggml_tensor* vector(const std::string& name);
    // Of a convolution, [kw, kh, in, out]; F16 unless the file or the options say F32.
    ggml_tensor* filter(const std::string& name);
    // What was declared under that name, or null.
    ggml_tensor* find(const std::string& name) const {
        return ggml_get_tensor(context_.get(), name.c_str());
    }
    // The values of a tensor of the list, for the host; nothing is declared.
    HostTensor read(const std::string& name) const;
    // The name of the file, for messages.
    std::string file() const;

    // What is declared from here on belongs to the next block, or to none of them again.
    void begin_block() { block_ = static_cast<int>(n_blocks_++); }
    void end_blocks() { block_ = kNoBlock; }

    // Allocates and fills everything declared. Throws out_of_memory, or cancelled.
    // `pairs_as_columns`: graphs take pairs of low rank as columns of blocks' matrices in BF16
    // (compute/low_rank), also of those that they unpack.
    void load(bool pairs_as_columns = false);
    // To be called before block i is computed when blocks are streamed; the first after the last,
    // else the one after it, or `next`, is computed then.
    void enter_block(size_t i, std::optional<size_t> next = std::nullopt);
    bool streams() const { return options_.stream_blocks; }

    // What changes the tensors; null for nothing.
    const std::shared_ptr<const AdapterSet>& adapters() const { return options_.adapters; }
    // Whether a change to these, null for none, can do without loading the network again: neither
    // they nor those of now change tensors by more than pairs of low rank.
    bool can_set_adapters(const std::shared_ptr<const AdapterSet>& adapters) const;
    // Changes the tensors by other adapters than now; built graphs are invalid then. Returns false
    // where that takes loading the network again: nothing is changed when can_set_adapters() says
    // so, else memory is lacking. Then, and after an exception, no adapters change the tensors.
    bool try_set_adapters(const std::shared_ptr<const AdapterSet>& adapters);
    // To none, where can_set_adapters() says that this is possible; throws nothing.
    void drop_adapters();
    // Pairs of low rank, for graphs.
    const LowRankTable& low_rank() const { return low_rank_.table(); }
    // How many values after each row of activations such columns take at most.
    int64_t spare_columns() const;

    // What types the matrices of blocks have, which are nearly all of a network.
    bool has_block_matrix(ggml_type type) const;
    bool all_block_matrices(const std::function<bool(ggml_type)>& suit) const;

    const WeightMemory& memory() const { return memory_; }
    // How many matrices were repacked, by the buffer type that did it, or are multiplied in tiles
    // where they lie; empty when none are.
    // Results of other layouts differ in their last bits.
    const std::string& layout() const { return layout_; }

  private:
    static constexpr int kNoBlock = -1;
    enum class Use { multiply, look_up, other };
    struct Bound {
        ggml_tensor* tensor;
        const ModelTensor* source;
        int block;
        Use use;
        bool rewritten;     // by adapters, when it is loaded
        int64_t n_columns;  // after those of the file, for a pair of low rank
    };
    using Write = std::function<void(uint64_t offset, std::span<const std::byte> bytes)>;

    const ModelTensor& checked(const std::string& name) const;
    ggml_tensor* declare(const std::string& name, TensorType type, Use use);
    TensorType matrix_type(const std::string& name) const;
    static bool is_rewritten(const AdapterSet* adapters, const std::string& name, Use use);
    bool is_rewritten(const std::string& name, Use use) const {
        return is_rewritten(options_.adapters.get(), name, use);
    }
    bool device_takes(const Bound& bound) const;
    void log_lacking(const std::vector<const ggml_tensor*>& tensors) const;
    std::vector<Bound*> with_pairs();
    bool takes_columns(const Bound& bound) const;
    bool joins_unpacked(const Bound& bound) const;
    void place_pairs();
    uint64_t& bytes_of_pairs();
    void place_by_block(const std::vector<const Bound*>& group);
    void widen_block(int block);
    bool widen_where_needed();
    bool suits_tiles(const Bound& bound) const;
    std::map<ggml_backend_buffer_type_t, std::vector<const Bound*>> choose_repacked() const;
    bool try_map(const Bound& bound);
    void place(const std::vector<const Bound*>& group, ggml_backend_buffer_type_t type,
               bool repacks = false);
    void place_blocks(const std::vector<const Bound*>& group);
    uint64_t loading_bytes(const std::vector<const Bound*>& group, int n_threads,
                           bool in_one_go) const;
    bool is_of_file_type(const Bound& bound) const;
    bool is_in_file(const Bound& bound) const;
    int64_t elements_at_once(const Bound& bound) const;
    void fill(const Bound& bound, bool in_one_go) const;
    void encode(const Bound& bound, const Write& write) const;
    void encode_rewritten(const Bound& bound, const Write& write) const;
    uint64_t rewriting_bytes() const;
    void check_finite(const Bound& bound, std::span<const float> values, int64_t first) const;

    const Backend& backend_;
    const Checkpoint& checkpoint_;
    std::unordered_map<std::string, Shape> shapes_;
    WeightOptions options_;
    LowRankWeights low_rank_;
    std::vector<Bound> bound_;
    int block_ = kNoBlock;
    size_t n_blocks_ = 0;
    bool pairs_as_columns_ = false;
    TensorContext context_;
    std::vector<ggml_backend_buffer_ptr> mapped_;  // one per file of the checkpoint
    std::vector<TensorBuffer> buffers_;
    std::map<int, TensorBuffer> block_buffers_;  // when pairs are columns: a buffer can be replaced
    WeightMemory memory_;
    std::string layout_;
    std::optional<BlockStream> stream_;
    // Adapters change a tensor as a whole, in F32: so many at a time.
    static constexpr std::ptrdiff_t kRewrittenAtOnce = 2;
    mutable std::counting_semaphore<kRewrittenAtOnce> rewriting_{kRewrittenAtOnce};
    mutable ByteBudget whole_;  // tensors that are put together
};

}  // namespace flux2
