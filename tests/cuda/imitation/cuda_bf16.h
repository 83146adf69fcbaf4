// What compute/cuda/attention.hpp names of CUDA's BF16, for tests without a GPU.
#pragma once

struct __nv_bfloat16;
