// An imitated CUDA: it counts what is made and not released, and fails where a test says so. Its
// GPU computes nothing.
#pragma once

#include <cuda_runtime_api.h>
#include <ggml-cpp.h>

#include <atomic>
#include <string>

namespace flux2::test {

// Of one test; the functions of tests/cuda/imitation work with the one that exists.
struct ImitatedCuda {
    ImitatedCuda();
    ~ImitatedCuda();
    ImitatedCuda(const ImitatedCuda&) = delete;
    ImitatedCuda& operator=(const ImitatedCuda&) = delete;

    std::string fails;                             // the name of a function that does
    ggml_status theirs = GGML_STATUS_SUCCESS;      // what ggml's backend returns for a graph
    bool pool_is_full = false;                     // ggml's backend throws instead
    int capability = 80;                           // of the GPU
    bool has_hopper_image = false;                 // this build has code of Hopper's kernels for it
    std::atomic<int> n_streams = 0, n_memory = 0;  // that exist
    std::atomic<int> n_handles = 0, n_events = 0, n_backends = 0;
    std::atomic<int> n_launched = 0;   // kernels of ours
    bool launched_for_hopper = false;  // they were told that they may be Hopper's
    std::atomic<int> n_our_waits = 0, n_their_waits = 0;  // of one stream for the other one
    std::atomic<int> n_stream_waits = 0;                  // of a thread for our stream
    cudaError_t last_error = cudaSuccess;                 // which cudaGetLastError() clears
};

// Of which kernels of ours compute GGML_OP_SQR and ggml's all others. For as long as the program
// runs.
ggml_backend_dev_t new_device();
// As ggml's CUDA backend.
ggml_backend_ptr start(ggml_backend_dev_t device);

}  // namespace flux2::test
