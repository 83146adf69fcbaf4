// In builds by a CUDA that does not know Hopper's instructions: has_hopper_attention() says so, and
// nobody calls the others.
#include "compute/cuda/attention.hpp"
#include "compute/cuda/attention_gradient.hpp"
#include "compute/cuda/conv_hopper.hpp"

namespace flux2::cuda {

bool has_hopper_attention() {
    return false;
}

bool hopper_attention_supports(const AttentionArgs&) {
    return false;
}

cudaError_t hopper_attention(const AttentionArgs&, cudaStream_t) {
    return cudaErrorNotSupported;
}

bool hopper_gradient_supports(const AttentionGradientArgs&) {
    return false;
}

cudaError_t hopper_query_gradient(const AttentionGradientArgs&, cudaStream_t) {
    return cudaErrorNotSupported;
}

cudaError_t hopper_key_gradient(const AttentionGradientArgs&, cudaStream_t) {
    return cudaErrorNotSupported;
}

bool conv_hopper_suits(const ConvArgs&) {
    return false;
}

cudaError_t conv_hopper(const ConvArgs&, cudaStream_t) {
    return cudaErrorNotSupported;
}

}  // namespace flux2::cuda
