# The version of ggml that is built. To update ggml edit this file, and the version of the same npm package in
# tests/interop/package.json, whose prebuilt llama.cpp reads our files in a test.
# Parts of it are changed before they are built: rpc.cmake lists what and why.
# The npm package carries the whole llama.cpp source as a git bundle; ggml is its folder ggml/.
set(FLUX2_GGML_VERSION 0.25.1)
set(FLUX2_GGML_NPM_PACKAGE node-llama-cpp)
set(FLUX2_GGML_NPM_VERSION 3.22.1)
set(FLUX2_GGML_NPM_SHA512  # hexadecimal form of the registry's integrity field
    6e5b488a9b9699cd76dc7eed30880318a4ac4ab866865418795502e3c5d38d55bb5c624988927209d95333343f2e25a83e4183a5c2f816f883a60c3ba9f4e20f)
set(FLUX2_GGML_BUNDLE llama/gitRelease.bundle)
# Used when npm is absent: the same source from its own repository.
set(FLUX2_GGML_GIT_REPOSITORY https://github.com/ggml-org/llama.cpp.git)
set(FLUX2_GGML_GIT_TAG v0.5.0)

# Edits to this version, which mend.cmake makes. To be looked at again with each new version.
# In CUDA builds:
# - ggml-cuda.cu, both memory pools: where the device has no memory left, std::bad_alloc is thrown, which Graph::compute and
#   compute/cuda/backend.cpp catch; ggml ends the process. ggml's own frames between them are C++ whose allocations of the pool have
#   destructors.
# In Vulkan builds, with every glslc and header:
# - CMakeLists.txt: the program that writes the shaders as C++ is compiled without optimisation, in 6 instead of 39 s; it waits for glslc.
# - ggml-vulkan.cpp, ..._get_max_size: tells the size of its blocks though the device may allow only smaller buffers, so graphs
#   were given buffers that the device refuses.
# - ggml-vulkan-common.h, ggml_vk_dispatch_pipeline: on software devices all slots of a descriptor set are written. Mesa's lavapipe
#   22.3 (Debian 12) also looks at slots that a shader does not use; where these name freed buffers, it corrupts its memory.
# - ggml-vulkan.cpp, convolutions: with subgroups of four (some Mali GPUs; Mesa's software device on Arm) the block of 32 channels
#   has more threads than values to load, and they wrote over the other block: wrong colours in pictures from 128x128 on.
# With a glslc that does not know GL_KHR_cooperative_matrix (2023.2 of Debian 12):
# - vulkan-shaders-gen.cpp and ggml-vulkan.cpp: flash_attn_decode_phase_1 and _2 (Intel) are compiled without the condition that
#   other shaders with such matrices have.
# With headers without VK_EXT_layer_settings (1.3.239 of Debian 12):
# - ggml-vulkan.cpp, ggml_vk_instance_init: uses vk::LayerSettingEXT, which only builds with validation need.
