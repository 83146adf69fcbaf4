// Which nodes of our graphs Apple, AMD and Intel GPUs take, by ggml's own word, and which the CPU
// computes instead. No such GPU is needed.
#include "audit/imitated_device.hpp"
#include "audit/networks.hpp"
#include "checkpoints/inventory.hpp"
#include "compute/ops/token_ops.hpp"
#include "compute/plain/own_node.hpp"
#include "models/transformer.hpp"
#include "support/folders.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace flux2 {
namespace {

using namespace test;

// Types of matrices in files: all that ggml has but those it computes with only.
std::vector<TensorType> all_matrix_types() {
    std::vector<TensorType> types;
    for (int32_t number = 0; number < GGML_TYPE_COUNT; ++number) {
        const auto type = type_from_gguf(number);
        const bool intermediate = number == GGML_TYPE_Q8_1 || number == GGML_TYPE_Q8_K;
        if (type && !intermediate && *type != TensorType::f64 &&
            (is_float(*type) || is_quantized(*type))) {
            types.push_back(*type);
        }
    }
    return types;
}

constexpr const char* kMetalWithoutBfloat = "Metal without bfloat";

// An operation with the types it reads: "MUL_MAT of q8_0, f32".
std::string described(const ggml_tensor* node) {
    std::string text = operation_name(node) + " of";
    for (int i = 0; i < GGML_MAX_SRC && node->src[i] != nullptr; ++i) {
        text += (i == 0 ? " " : ", ") + std::string(ggml_type_name(node->src[i]->type));
    }
    return text;
}

struct Audit {
    std::set<std::string> refused;  // what the device does not take, in words
    std::set<std::string> chosen;   // operations that our placement of weights gives to the CPU
    std::map<std::string, size_t> n_nodes;  // by graph
    size_t n_all = 0;
};

// Weights that stay in RAM are computed with there.
bool reads_weights_in_ram(const ggml_tensor* node) {
    const auto in_ram = [](const ggml_tensor* x) {
        return x != nullptr && x->buffer != nullptr && ggml_backend_buffer_is_host(x->buffer) &&
               ggml_backend_buffer_get_usage(x->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
    };
    return std::any_of(std::begin(node->src), std::end(node->src), in_ram);
}

void audit(const ImitatedDevice& device, const std::string& name, const Graph& graph,
           Audit& result) {
    for (const ggml_tensor* node : graph.nodes()) {
        ++result.n_nodes[name];
        ++result.n_all;
        if (reads_weights_in_ram(node)) {
            result.chosen.insert(node->op == GGML_OP_GET_ROWS ? "GET_ROWS" : described(node));
        } else if (!device.takes(node)) {
            result.refused.insert(described(node));
        }
    }
}

const EmptyNetworks& networks() {
    static const EmptyNetworks all;
    return all;
}

using Types = std::vector<std::optional<TensorType>>;

Audit audit_all(const ImitatedDevice& device, const Types& types) {
    add_imitated_devices();
    const Backend backend(device.name, 1, BackendUse::measure);
    Audit result;
    for (const auto& type : types) {
        networks().visit_graphs(backend, type, [&](const std::string& name, const Graph& graph) {
            audit(device, name, graph, result);
        });
    }
    return result;
}

// In memory; and as files have them, for a device that must not be given some of those.
Types types_for(const ImitatedDevice& device) {
    Types types = {std::nullopt};
    for (const TensorType type : all_matrix_types()) {
        if (type != TensorType::bf16 || device.name != kMetalWithoutBfloat) {
            types.emplace_back(type);
        }
    }
    return types;
}

// What no device takes. Nobody publishes these networks in types of 1.6 or 2 bits, or in ggml's own
// NVFP4: matrices of such a file stay in RAM and are multiplied there. NVFP4 as it is published,
// with scales in other tensors, becomes BF16 when it is loaded.
std::set<std::string> expected_of(const ImitatedDevice& device) {
    if (device.backend == "MTL") {
        return {"MUL_MAT of nvfp4, f32", "MUL_MAT of tq1_0, f32"};
    }
    return {"MUL_MAT of tq1_0, f32", "MUL_MAT of tq2_0, f32"};
}

std::string joined(const std::set<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) {
        all += text + "\n";
    }
    return all;
}

TEST_CASE("GPUs take every node of every network at every type, but for those listed here") {
    for (const ImitatedDevice& device : imitated_devices()) {
        CAPTURE(device.name);
        const Types types = types_for(device);
        const Audit result = audit_all(device, types);
        CHECK(joined(result.refused).empty());
        std::set<std::string> in_ram = expected_of(device);
        in_ram.insert("GET_ROWS");  // of the text encoder's largest matrix, a prompt's rows only
        CHECK(joined(result.chosen) == joined(in_ram));
        std::set<std::string> names;
        for (const auto& [name, n_nodes] : result.n_nodes) {
            CAPTURE(name);
            CHECK(n_nodes > 10 * types.size());
            names.insert(name.substr(0, name.find(',')));
        }
        CHECK(names.size() == networks().n_networks());
        MESSAGE(device.name << " (" << device.what << "): asked about " << result.n_all
                            << " nodes of " << result.n_nodes.size() << " graphs at "
                            << types.size() << " types");
    }
}

TEST_CASE("a device that lacks BF16 gets F16 of BF16 files, and refuses BF16 with a sentence") {
    add_imitated_devices();
    const Backend without(kMetalWithoutBfloat, 1, BackendUse::measure);
    size_t n_f16 = 0;
    networks().visit_graphs(without, std::nullopt, [&](const std::string&, const Graph& graph) {
        for (const ggml_tensor* node : graph.nodes()) {
            n_f16 += node->op == GGML_OP_MUL_MAT && node->src[0]->type == GGML_TYPE_F16 ? 1 : 0;
            CHECK(node->type != GGML_TYPE_BF16);
        }
    });
    CHECK(n_f16 > 0);
    const CaughtError error = error_of([&] {
        networks().visit_graphs(without, TensorType::bf16, [](const std::string&, const Graph&) {});
    });
    CHECK(error.kind == ErrorKind::unsupported);
    CHECK(error.mentions("cannot compute with BF16"));
}

// ---- The audit itself ----

// What the audit says of one more node in a graph.
std::map<std::string, std::string> refusals_of(
    const std::function<ggml_tensor*(Graph& g, ggml_tensor* x)>& build) {
    add_imitated_devices();
    std::map<std::string, std::string> refusals;
    for (const ImitatedDevice& device : imitated_devices()) {
        const Backend backend(device.name, 1, BackendUse::measure);
        Graph g(backend, 64);
        g.finish(build(g, g.input_f32("x", {64, 32, 4})));
        Audit result;
        audit(device, "mutation", g, result);
        CHECK(result.n_all > 0);
        refusals[device.name] = joined(result.refused);
    }
    return refusals;
}

TEST_CASE("the audit finds operations that a device lacks") {
    const auto taken = refusals_of([](Graph& g, ggml_tensor* x) { return ggml_relu(g, x); });
    const auto padded = refusals_of(
        [](Graph& g, ggml_tensor* x) { return ggml_pad_ext(g, x, 1, 0, 0, 0, 0, 0, 0, 0); });
    const auto windows =
        refusals_of([](Graph& g, ggml_tensor* x) { return ggml_win_part(g, x, 8); });
    const auto head = refusals_of([](Graph& g, ggml_tensor* x) {
        return ggml_flash_attn_ext(g, ggml_view_3d(g, x, 24, 32, 4, x->nb[1], x->nb[2], 0),
                                   ggml_view_3d(g, x, 24, 32, 4, x->nb[1], x->nb[2], 0),
                                   ggml_view_3d(g, x, 24, 32, 4, x->nb[1], x->nb[2], 0), nullptr,
                                   1.0f, 0.0f, 0.0f);
    });
    for (const ImitatedDevice& device : imitated_devices()) {
        CAPTURE(device.name);
        CHECK(taken.at(device.name).empty());
        CHECK(windows.at(device.name) == "WIN_PART of f32\n");
        CHECK(head.at(device.name) == "FLASH_ATTN_EXT of f32, f32, f32\n");
        CHECK(padded.at(device.name) == (device.backend == "MTL" ? "PAD of f32\n" : ""));
    }
}

TEST_CASE("nodes of our own are none that such devices take, and they get none") {
    const Backend cpu("CPU", 1, BackendUse::measure);
    size_t n_own = 0;
    networks().visit_graphs(cpu, TensorType::f16, [&](const std::string&, const Graph& graph) {
        for (const ggml_tensor* node : graph.nodes()) {
            if (operation_of(node) == nullptr) {
                continue;
            }
            ++n_own;
            for (const ImitatedDevice& device : imitated_devices()) {
                CHECK(!device.takes(node));
            }
        }
    });
    CHECK(n_own > 0);
    for (const ImitatedDevice& device : imitated_devices()) {
        const Backend backend(device.name, 1, BackendUse::measure);
        CHECK(backend.operations() == Operations::stock);
    }
}

// ---- Placement: the CPU computes what an imitated device gets, and the results are the CPU's ----

HostTensor varied(const std::array<int64_t, 4>& ne) {
    HostTensor tensor(ne);
    for (size_t i = 0; i < tensor.data.size(); ++i) {
        tensor.data[i] = std::sin(static_cast<float>(i));
    }
    return tensor;
}

TransformerInput small_input(const TransformerSizes& sizes) {
    constexpr int32_t kSide = 4;
    constexpr int32_t kText = 5;
    TransformerInput input;
    input.img = varied({sizes.channels, kSide * kSide, 1, 1});
    input.txt = share(varied({sizes.text_width, kText, 1, 1}));
    for (int32_t i = 0; i < kSide * kSide; ++i) {
        input.img_pos.push_back({0, i / kSide, i % kSide, 0});
    }
    for (int32_t i = 0; i < kText; ++i) {
        input.txt_pos.push_back({0, 0, 0, i});
    }
    input.timestep = 0.5f;
    return input;
}

TEST_CASE("networks on such devices compute what they compute on a CPU with ggml's operations") {
    add_imitated_devices();
    const Checkpoint transformer =
        Checkpoint::open(std::filesystem::path(test::tiny_model()) / "flux2-tiny-bf16.gguf");
    const TransformerSizes sizes = read_transformer_sizes(transformer);
    const TransformerInput input = small_input(sizes);
    const WeightOptions options = {.type = TensorType::q8_0, .repack = false};
    Backend cpu("CPU", 2);
    cpu.use_stock_operations();
    const HostTensor expected = Transformer(cpu, sizes, transformer, options).predict(input);
    for (const ImitatedDevice& device : imitated_devices()) {
        CAPTURE(device.name);
        const size_t before = n_computed_nodes();
        const Backend backend(device.name, 2);
        Transformer network(backend, sizes, transformer, options);
        CHECK(network.predict(input).data == expected.data);
        // All of them, not only a few between those of the CPU.
        CHECK(n_computed_nodes() - before == network.graph()->nodes().size());
    }
}

TEST_CASE("more queries than Metal takes at once are computed in parts") {
    add_imitated_devices();
    constexpr int64_t kHeadDim = 64;
    constexpr int64_t kKeys = 16;
    constexpr int64_t kQueries = 70000;
    const Backend backend("Metal", 2);
    const HostTensor keys = varied({kHeadDim, 1, kKeys, 1});
    const auto attended = [&](const HostTensor& queries) {
        Graph g(backend, 64);
        ggml_tensor* q = g.input_f32("q", {kHeadDim, 1, queries.ne[2]});
        ggml_tensor* k = g.input_f32("k", {kHeadDim, 1, kKeys});
        ggml_tensor* result = attention(g, {.q = q, .k = k, .v = k});
        g.finish(result);
        g.set(q, queries.data);
        g.set(k, keys.data);
        const size_t before = n_computed_nodes();
        g.compute();
        CHECK(n_computed_nodes() - before == g.nodes().size());
        return g.read(result);
    };
    const HostTensor queries = varied({kHeadDim, 1, kQueries, 1});
    const HostTensor all = attended(queries);
    REQUIRE(all.data.size() == queries.data.size());
    // The same as for a few of them alone.
    constexpr int64_t kFew = 40;
    for (const int64_t first :
         {int64_t{0}, int64_t{32768 - 20}, int64_t{65536 - 20}, kQueries - kFew}) {
        CAPTURE(first);
        HostTensor few({kHeadDim, 1, kFew, 1});
        std::copy_n(queries.data.begin() + first * kHeadDim, few.data.size(), few.data.begin());
        const HostTensor expected = attended(few);
        double largest = 0;
        for (size_t i = 0; i < expected.data.size(); ++i) {
            const float found = all.data[static_cast<size_t>(first * kHeadDim) + i];
            largest = std::max(largest, std::abs(static_cast<double>(found - expected.data[i])));
        }
        CHECK(largest < 1e-5);  // roundings of sums to F32 in another order
    }
}

}  // namespace
}  // namespace flux2
