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
