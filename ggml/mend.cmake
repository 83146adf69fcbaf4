# Edits to the unpacked ggml, for builds that need them; package.cmake lists them with their reasons. What is already edited stays as
# it is, so builds that share a source can each ask for it.

# Replaces `old` by `new` in a file. Fails when it has neither: then ggml has changed, and the edit must be looked at again.
function(flux2_edit file old new)
    file(READ ${file} text)
    string(FIND "${text}" "${new}" done)
    if(NOT done EQUAL -1)
        return()
    endif()
    string(FIND "${text}" "${old}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "${file} lacks these lines:\n${old}See whether this ggml still needs the edit of ggml/mend.cmake.")
    endif()
    string(REPLACE "${old}" "${new}" text "${text}")
    file(WRITE ${file} "${text}")
    message(STATUS "Edited ${file} (see ggml/package.cmake)")
endfunction()

# Encloses lines in a condition of the preprocessor.
function(flux2_guard file condition lines)
    flux2_edit(${file} "${lines}" "#if ${condition}\n${lines}#endif // ${condition}\n")
endfunction()

function(flux2_mend_cuda source)
    set(file ${source}/src/ggml-cuda/ggml-cuda.cu)
    flux2_edit(${file}
"        CUDA_CHECK(err);
        *actual_size = look_ahead_size;
"
"        if (err == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();
            throw std::bad_alloc();
        }
        CUDA_CHECK(err);
        *actual_size = look_ahead_size;
")
    flux2_edit(${file}
"            CU_CHECK(cuMemCreate(&handle, reserve_size, &prop, 0));
"
"            const auto created = cuMemCreate(&handle, reserve_size, &prop, 0);
            if (created == CUDA_ERROR_OUT_OF_MEMORY) {
                throw std::bad_alloc();
            }
            CU_CHECK(created);
")
    flux2_edit(${file}
"#include <mutex>
"
"#include <mutex>
#include <new>
")
endfunction()

# The same test as ggml's: whether glslc knows matrices that several threads hold together.
function(flux2_glslc_has_cooperative_matrices folder result)
    execute_process(COMMAND ${Vulkan_GLSLC_EXECUTABLE} -o - -fshader-stage=compute --target-env=vulkan1.3
                            ${folder}/vulkan-shaders/feature-tests/coopmat.comp
                    OUTPUT_QUIET ERROR_VARIABLE log)
    string(FIND "${log}" "extension not supported" refused)
    if(refused EQUAL -1)
        set(${result} ON PARENT_SCOPE)
    else()
        set(${result} OFF PARENT_SCOPE)
    endif()
endfunction()

function(flux2_mend_vulkan source)
    set(folder ${source}/src/ggml-vulkan)
    find_package(Vulkan COMPONENTS glslc)
    if(NOT Vulkan_FOUND OR NOT Vulkan_GLSLC_EXECUTABLE)
        message(FATAL_ERROR "Vulkan's headers or its shader compiler glslc were not found. "
            "scripts/setup.sh vulkan installs them; elsewhere install the Vulkan SDK.")
    endif()

    flux2_edit(${folder}/CMakeLists.txt
"    set(VULKAN_SHADER_GEN_CMAKE_ARGS \"\")
"
"    set(VULKAN_SHADER_GEN_CMAKE_ARGS -DCMAKE_CXX_FLAGS_RELEASE=)
")

    flux2_edit(${folder}/ggml-vulkan.cpp
"    ggml_backend_vk_buffer_type_context * ctx = (ggml_backend_vk_buffer_type_context *) buft->context;
    return ctx->device->suballocation_block_size;
"
"    ggml_backend_vk_buffer_type_context * ctx = (ggml_backend_vk_buffer_type_context *) buft->context;
    return std::min(ctx->device->suballocation_block_size, ctx->device->max_buffer_size);
")

    flux2_edit(${folder}/ggml-vulkan-common.h
"    vk::WriteDescriptorSet write_descriptor_set{ descriptor_set, 0, 0, pipeline->parameter_count, vk::DescriptorType::eStorageBuffer, nullptr, descriptor_buffer_infos.begin() };
"
"    std::array<vk::DescriptorBufferInfo, MAX_PARAMETER_COUNT> slots;
    slots.fill(*descriptor_buffer_infos.begin());
    std::copy(descriptor_buffer_infos.begin(), descriptor_buffer_infos.end(), slots.begin());
    const bool on_cpu = ctx->device->properties.deviceType == vk::PhysicalDeviceType::eCpu;
    const uint32_t slot_count = on_cpu ? MAX_PARAMETER_COUNT : pipeline->parameter_count;
    vk::WriteDescriptorSet write_descriptor_set{ descriptor_set, 0, 0, slot_count, vk::DescriptorType::eStorageBuffer, nullptr, slots.data() };
")

    flux2_edit(${folder}/ggml-vulkan.cpp
"        if (device->subgroup_shuffle &&
            device->vendor_id != VK_VENDOR_ID_INTEL &&   // Do not enable collectives on Intel, see PR 14316.
"
"        if (device->subgroup_shuffle &&
            device->subgroup_size * conv2d_BS.K >= conv2d_WG_SIZE &&
            device->vendor_id != VK_VENDOR_ID_INTEL &&   // Do not enable collectives on Intel, see PR 14316.
")

    flux2_glslc_has_cooperative_matrices(${folder} coopmat)
    if(NOT coopmat)
        set(condition "defined(GGML_VULKAN_COOPMAT_GLSLC_SUPPORT)")
        flux2_guard(${folder}/vulkan-shaders/vulkan-shaders-gen.cpp ${condition}
"    string_to_spv(\"fa_decode_ph1\", \"flash_attn_decode_phase_1.comp\", {}, true, true, false, false);
    string_to_spv(\"fa_decode_ph2\", \"flash_attn_decode_phase_2.comp\", {}, true, true, false, false);
")
        file(STRINGS ${folder}/ggml-vulkan.cpp lines REGEX "ggml_vk_create_pipeline.*\"xe_fa_decode_ph[12]\"")
        list(LENGTH lines n)
        if(NOT n EQUAL 2)
            message(FATAL_ERROR "${folder}/ggml-vulkan.cpp makes ${n} pipelines named xe_fa_decode_ph, expected 2: "
                "see whether this ggml still needs the edit of ggml/mend.cmake.")
        endif()
        foreach(line IN LISTS lines)
            flux2_guard(${folder}/ggml-vulkan.cpp ${condition} "${line}\n")
        endforeach()
    endif()

    file(STRINGS ${Vulkan_INCLUDE_DIRS}/vulkan/vulkan_core.h layer_settings REGEX "define VK_EXT_layer_settings ")
    if(NOT layer_settings)
        flux2_guard(${folder}/ggml-vulkan.cpp "defined(VK_EXT_layer_settings)"
"    std::vector<vk::LayerSettingEXT> settings = {
        {
            \"VK_LAYER_KHRONOS_validation\",
            \"validate_best_practices\",
            vk::LayerSettingTypeEXT::eBool32,
            1,
            &enable_best_practice
        },
    };
    vk::LayerSettingsCreateInfoEXT layer_setting_info(settings);
")
        flux2_edit(${folder}/ggml-vulkan.cpp
"    vk::InstanceCreateInfo instance_create_info(vk::InstanceCreateFlags{}, &app_info, layers, extensions, &layer_setting_info);
"
"#if defined(VK_EXT_layer_settings)
    vk::InstanceCreateInfo instance_create_info(vk::InstanceCreateFlags{}, &app_info, layers, extensions, &layer_setting_info);
#else
    (void) enable_best_practice;
    vk::InstanceCreateInfo instance_create_info(vk::InstanceCreateFlags{}, &app_info, layers, extensions);
#endif
")
    endif()
endfunction()
