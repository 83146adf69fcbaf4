// The backend of NVIDIA GPUs where something fails, and in several threads, on an imitated CUDA.
#include "base/log.hpp"
#include "compute/cuda/backend.hpp"
#include "cuda/imitation.hpp"

#include <flux2/error.hpp>

#include <doctest/doctest.h>
#include <ggml-backend-impl.h>

#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace flux2::test {
namespace {

// One node of ggml's, one of ours, one of ggml's.
class ThreeNodes {
  public:
    ThreeNodes()
        : context_(ggml_init({.mem_size = 1 << 20, .mem_buffer = nullptr, .no_alloc = true})),
          graph_(ggml_new_graph(context_.get())) {
        ggml_tensor* x = ggml_new_tensor_1d(context_.get(), GGML_TYPE_F32, 4);
        x = ggml_sqr(context_.get(), ggml_neg(context_.get(), x));
        ggml_build_forward_expand(graph_, ggml_neg(context_.get(), x));
    }

    ggml_status compute(const ggml_backend_ptr& backend) {
        return backend->iface.graph_compute(backend.get(), graph_);
    }

  private:
    ggml_context_ptr context_;
    ggml_cgraph* graph_;
};

TEST_CASE("a graph of ggml's nodes and ours is computed") {
    ImitatedCuda cuda;
    const ggml_backend_ptr backend = cuda::extend(start(new_device()));
    CHECK(ThreeNodes().compute(backend) == GGML_STATUS_SUCCESS);
    CHECK(cuda.n_launched == 1);
}

TEST_CASE("a failure of ggml's nodes ends the graph with its status") {
    ImitatedCuda cuda;
    const ggml_backend_ptr backend = cuda::extend(start(new_device()));
    for (const ggml_status status : {GGML_STATUS_FAILED, GGML_STATUS_ALLOC_FAILED}) {
        cuda.theirs = status;
        CHECK(ThreeNodes().compute(backend) == status);
    }
    CHECK(cuda.n_launched == 0);
}

TEST_CASE("a failure of a kernel, or on the way to it and back, ends the graph with a line") {
    for (const char* function :
         {"a kernel", "cudaSetDevice", "cudaStreamWaitEvent", "cudaEventRecord"}) {
        CAPTURE(function);
        ImitatedCuda cuda;
        const ggml_backend_ptr backend = cuda::extend(start(new_device()));
        cuda.fails = function;
        std::string lines;
        const ScopedLog log([&](LogLevel, const std::string& line) { lines += line; });
        const bool is_kernel = function == std::string("a kernel");
        CHECK(ThreeNodes().compute(backend) ==
              (is_kernel ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED));
        CHECK(lines.find("failed: out of memory") != std::string::npos);
        cuda.fails.clear();
    }
}

TEST_CASE("after a failed graph ggml's stream waits for ours, and the next graph is in order") {
    for (const char* function : {"a kernel", "cudaEventRecord"}) {
        CAPTURE(function);
        ImitatedCuda cuda;
        const ggml_backend_ptr backend = cuda::extend(start(new_device()));
        const ScopedLog log([](LogLevel, const std::string&) {});
        cuda.fails = function;
        CHECK(ThreeNodes().compute(backend) != GGML_STATUS_SUCCESS);
        cuda.fails.clear();
        CHECK(cuda.n_their_waits + cuda.n_stream_waits == 1);  // for what was started
        const int our_waits = cuda.n_our_waits, their_waits = cuda.n_their_waits;
        CHECK(ThreeNodes().compute(backend) == GGML_STATUS_SUCCESS);
        CHECK(cuda.n_our_waits == our_waits + 1);  // for ggml's uploads
        CHECK(cuda.n_their_waits == their_waits + 1);
    }
}

TEST_CASE("an error that a failed graph left behind does not end the next one") {
    ImitatedCuda cuda;
    const ggml_backend_ptr backend = cuda::extend(start(new_device()));
    const ScopedLog log([](LogLevel, const std::string&) {});
    cuda.fails = "cudaStreamWaitEvent";
    CHECK(ThreeNodes().compute(backend) == GGML_STATUS_FAILED);
    cuda.fails.clear();
    CHECK(ThreeNodes().compute(backend) == GGML_STATUS_SUCCESS);
}

TEST_CASE("a full memory pool of ggml's ends the graph, not the process") {
    ImitatedCuda cuda;
    const ggml_backend_ptr backend = cuda::extend(start(new_device()));
    cuda.pool_is_full = true;
    CHECK(ThreeNodes().compute(backend) == GGML_STATUS_ALLOC_FAILED);
    cuda.pool_is_full = false;
    CHECK(ThreeNodes().compute(backend) == GGML_STATUS_SUCCESS);
}

TEST_CASE("the first graph is computed on every GPU, with Hopper's kernels where they were built") {
    for (const int capability : {80, 86, 89, 90, 100, 120}) {
        for (const bool has_image : {false, true}) {
            CAPTURE(capability);
            CAPTURE(has_image);
            ImitatedCuda cuda;
            cuda.capability = capability;
            cuda.has_hopper_image = has_image;
            const ggml_backend_dev_t device = new_device();
            const bool is_hopper = capability == 90 && has_image;
            CHECK(cuda::has_hopper_kernels(device) == is_hopper);
            const ggml_backend_ptr backend = cuda::extend(start(device));
            CHECK(ThreeNodes().compute(backend) == GGML_STATUS_SUCCESS);
            CHECK(cuda.launched_for_hopper == is_hopper);
        }
    }
}

TEST_CASE("a backend that cannot be started leaves nothing behind") {
    for (const char* function :
         {"event_new", "cudaEventQuery", "cudaSetDevice", "cudaStreamCreateWithFlags", "cudaMalloc",
          "cublasCreate", "cublasSetStream"}) {
        CAPTURE(function);
        ImitatedCuda cuda;
        cuda.fails = function;
        CHECK_THROWS_AS(cuda::extend(start(new_device())), Error);
        CHECK(cuda.n_events == 0);
        CHECK(cuda.n_streams == 0);
        CHECK(cuda.n_memory == 0);
        CHECK(cuda.n_handles == 0);
        CHECK(cuda.n_backends == 0);
    }
}

TEST_CASE("a backend that ends releases all it had") {
    ImitatedCuda cuda;
    ggml_backend_ptr backend = cuda::extend(start(new_device()));
    CHECK(cuda.n_streams == 1);
    CHECK(cuda.n_memory == 1);
    CHECK(cuda.n_handles == 1);
    CHECK(cuda.n_events == 2);
    CHECK(cuda.n_backends == 1);
    backend.reset();
    CHECK(cuda.n_streams + cuda.n_memory + cuda.n_handles + cuda.n_events + cuda.n_backends == 0);
}

ggml_backend_dev_t extended(ggml_backend_dev_t device) {
    return ggml_backend_get_device(cuda::extend(start(device)).get());
}

TEST_CASE("backends start in any thread; a device is extended once") {
    constexpr size_t kThreads = 8;
    constexpr size_t kDevices = 20000;  // of each thread: two are in the table at the same time
    ImitatedCuda cuda;
    std::vector<ggml_backend_dev_t> devices;
    while (devices.size() < kThreads * kDevices) {
        devices.push_back(new_device());
    }
    std::vector<ggml_backend_dev_t> made(devices.size());
    {
        std::latch all_there(kThreads);
        std::vector<std::jthread> threads;
        for (size_t thread = 0; thread < kThreads; ++thread) {
            threads.emplace_back([&, thread] {
                all_there.arrive_and_wait();
                for (size_t i = thread; i < devices.size(); i += kThreads) {
                    made[i] = extended(devices[i]);
                }
            });
        }
    }
    size_t n_right = 0;
    for (size_t i = 0; i < devices.size(); ++i) {
        n_right += made[i]->context == devices[i] && extended(devices[i]) == made[i] ? 1 : 0;
    }
    CHECK(n_right == devices.size());
}

}  // namespace
}  // namespace flux2::test
