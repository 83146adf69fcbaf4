# Our CUDA kernels and the backend that runs them, as part of flux2. They need CUDA 11.8, those for Hopper 12.0.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # As ggml does; give a list to build for other machines.
    if(CMAKE_VERSION VERSION_LESS 3.24)
        set(CMAKE_CUDA_ARCHITECTURES 80 86 89 90)
    else()
        set(CMAKE_CUDA_ARCHITECTURES native)
    endif()
endif()
enable_language(CUDA)

add_library(flux2_kernels OBJECT
    compute/cuda/attention.cu
    compute/cuda/attention_gradient.cu
    compute/cuda/conv.cu
    compute/cuda/gradient_ops.cu
    compute/cuda/gradient_rows.cu
    compute/cuda/group_norm.cu
    compute/cuda/pixels.cu
    compute/cuda/token_ops.cu
    compute/cuda/unpack.cu)
# wgmma exists for sm_90a alone; other GPUs never get there.
set(FLUX2_HOPPER_ARCHITECTURE 90a-real CACHE STRING "What the kernels for Hopper are compiled for; another one than 90a leaves them empty, for tests")
mark_as_advanced(FLUX2_HOPPER_ARCHITECTURE)
if(CUDAToolkit_VERSION VERSION_LESS 12.0)
    message(NOTICE "CUDA ${CUDAToolkit_VERSION} does not know Hopper's matrix units, so an H100 or H200 gets the kernels of "
        "other GPUs. CUDA 12.0 or newer builds all.")
    add_library(flux2_hopper_kernels OBJECT compute/cuda/no_hopper.cpp)
else()
    add_library(flux2_hopper_kernels OBJECT
        compute/cuda/attention_gradient_hopper.cu
        compute/cuda/attention_hopper.cu
        compute/cuda/conv_hopper.cu)
    set_target_properties(flux2_hopper_kernels PROPERTIES CUDA_ARCHITECTURES "${FLUX2_HOPPER_ARCHITECTURE}")
endif()
foreach(kernels flux2_kernels flux2_hopper_kernels)
    target_include_directories(${kernels} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    set_target_properties(${kernels} PROPERTIES CUDA_STANDARD 17 CUDA_VISIBILITY_PRESET hidden)
    target_link_libraries(${kernels} PRIVATE CUDA::cudart)
endforeach()

target_sources(flux2_compute PRIVATE
    compute/cuda/backend.cpp
    compute/cuda/gradient_launches.cpp
    compute/cuda/kernel_table.cpp
    compute/cuda/large_products.cpp
    compute/cuda/products.cpp)
target_link_libraries(flux2_compute PRIVATE flux2_ggml_backend CUDA::cudart CUDA::cublas CUDA::cublasLt)

function(flux2_add_kernels library)
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:flux2_kernels> $<TARGET_OBJECTS:flux2_hopper_kernels>)
    set_target_properties(${library} PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
    target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:CUDA::cudart> $<BUILD_INTERFACE:CUDA::cublas>
                          $<BUILD_INTERFACE:CUDA::cublasLt>)
endfunction()
