// Every operation of every graph must run on CUDA and Metal in the pinned ggml. The conditions
// below were read from ggml_backend_cuda_device_supports_op and ggml_metal_device_supports_op of
// that version; none of our operations needs to fall back to the CPU.
#include "checkpoints/inventory.hpp"
#include "models/text_encoder.hpp"
#include "models/transformer.hpp"
#include "models/vae.hpp"
#include "pipeline/latents.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <set>

namespace flux2 {
namespace {

bool is_one_of(int64_t value, const std::set<int64_t>& allowed) {
    return allowed.contains(value);
}

// Head sizes both backends have kernels for.
const std::set<int64_t> kHeadSizes = {64, 80, 96, 112, 128, 256};

bool runs_everywhere(const ggml_tensor* op) {
    const ggml_tensor* a = op->src[0];
    const ggml_tensor* b = op->src[1];
    const bool f32 = op->type == GGML_TYPE_F32;
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
            return true;
        case GGML_OP_ADD:
        case GGML_OP_MUL:
            return f32 && a->type == GGML_TYPE_F32 && b->type == GGML_TYPE_F32 &&
                   ggml_is_contiguous_rows(a) && ggml_is_contiguous_rows(b);
        case GGML_OP_CONT:
        case GGML_OP_CPY:
            return f32 && a->type == GGML_TYPE_F32;
        case GGML_OP_CONCAT:
            return f32 && a->type == GGML_TYPE_F32 && b->type == GGML_TYPE_F32;
        case GGML_OP_MUL_MAT:
            return f32 && b->type == GGML_TYPE_F32 && a->nb[0] == ggml_type_size(a->type) &&
                   b->nb[0] == sizeof(float);
        case GGML_OP_NORM:
        case GGML_OP_RMS_NORM:
        case GGML_OP_SOFT_MAX:
            return ggml_is_contiguous_rows(a);
        case GGML_OP_GROUP_NORM:
            return ggml_is_contiguous(a);
        case GGML_OP_GLU:
            return ggml_get_glu_op(op) == GGML_GLU_OP_SWIGLU && ggml_is_contiguous_1(a);
        case GGML_OP_UNARY:
            return ggml_get_unary_op(op) == GGML_UNARY_OP_SILU && ggml_is_contiguous(a);
        case GGML_OP_GET_ROWS:
            return b->type == GGML_TYPE_I32;
        case GGML_OP_ROPE:
            return a->nb[0] == ggml_type_size(a->type) && ggml_is_contiguous_2(a);
        case GGML_OP_FLASH_ATTN_EXT:
            return is_one_of(a->ne[0], kHeadSizes) && b->type == op->src[2]->type;
        case GGML_OP_CONV_2D:
            return ggml_is_contiguous(a) && ggml_is_contiguous(b) && f32 &&
                   (a->type == GGML_TYPE_F16 || a->type == GGML_TYPE_F32);
        case GGML_OP_UPSCALE:
            return a->type == GGML_TYPE_F32;
        case GGML_OP_PAD:
            // Metal pads at the end of a dimension only.
            return op->op_params[0] == 0 && op->op_params[2] == 0 && op->op_params[4] == 0 &&
                   op->op_params[6] == 0;
        default:
            return false;
    }
}

void check_ops(const Graph* graph) {
    REQUIRE(graph != nullptr);
    CHECK(graph->nodes().size() > 10);
    for (const ggml_tensor* node : graph->nodes()) {
        CHECK_MESSAGE(runs_everywhere(node), ggml_op_desc(node) << " " << node->name);
    }
}

// Types a checkpoint may have; what is multiplied depends on it.
const std::vector<TensorType> kTypes = {TensorType::f32, TensorType::f16, TensorType::bf16,
                                        TensorType::q8_0};

TEST_CASE("the transformer's operations run on every backend") {
    Backend backend("CPU");
    backend.use_stock_operations();
    const Checkpoint checkpoint = Checkpoint::open(test::fixture("klein/flux2.safetensors"));
    for (const TensorType type : kTypes) {
        Transformer transformer(backend, read_transformer_sizes(checkpoint), checkpoint,
                                {.type = type});
        TransformerInput input;
        input.img = HostTensor({128, 12, 1, 1});
        input.ref = HostTensor({128, 4, 1, 1});
        input.txt = share(HostTensor({192, 16, 1, 1}));
        input.img_pos = image_positions(4, 3);
        input.ref_pos = image_positions(2, 2, reference_time(0));
        input.txt_pos = text_positions(16);
        for (const ReferenceMode mode :
             {ReferenceMode::joint, ReferenceMode::extract, ReferenceMode::cached}) {
            transformer.predict(input, mode);
            check_ops(transformer.graph());
        }
    }
}

TEST_CASE("the text encoder's operations run on every backend") {
    Backend backend("CPU");
    backend.use_stock_operations();
    const Checkpoint checkpoint = Checkpoint::open(test::fixture("klein/text_encoder.safetensors"));
    for (const TensorType type : kTypes) {
        TextEncoder encoder(backend, read_text_encoder_sizes(checkpoint), {}, checkpoint,
                            {.type = type});
        encoder.encode(std::vector<int32_t>{1, 2, 3, 4}, 3);
        check_ops(encoder.graph());
    }
}

TEST_CASE("the autoencoder's operations run on every backend") {
    Backend backend("CPU");
    backend.use_stock_operations();
    const Checkpoint checkpoint = Checkpoint::open(test::fixture("klein/vae.safetensors"));
    for (const TensorType type : kTypes) {
        Vae vae(backend, read_vae_sizes(checkpoint), checkpoint, {.type = type});
        const HostTensor pixels = vae.decode(HostTensor({2, 2, 128, 1}));
        check_ops(vae.graph());
        vae.encode(pixels);
        check_ops(vae.graph());
    }
}

}  // namespace
}  // namespace flux2
