# What makes a build from nothing shorter: files are compiled together, and common headers once. FLUX2_COMPILE_TOGETHER=OFF turns both
# off, for those who work on the code. Builds that run for seconds also leave optimisation out.

# GCC collects garbage from 128 MB of heap on, which is a tenth of its time. With memory for it, only from 1 GB on.
cmake_host_system_information(RESULT megabytes QUERY TOTAL_PHYSICAL_MEMORY)
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR needed "2000 * ${cores}")
if(megabytes GREATER_EQUAL needed)
    foreach(language C CXX)
        add_compile_options($<$<COMPILE_LANG_AND_ID:${language},GNU>:--param=ggc-min-heapsize=1000000>)
    endforeach()
endif()

if(FLUX2_OPTIMISE_ONLY_KERNELS)
    foreach(language C CXX)
        string(REPLACE "-O3" "-O1" CMAKE_${language}_FLAGS_RELEASE "${CMAKE_${language}_FLAGS_RELEASE}")
    endforeach()
endif()

# Eight files of a target at a time, since most of the time goes into headers.
function(flux2_compile_together target)
    if(FLUX2_COMPILE_TOGETHER)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endif()
endfunction()

# Headers that most files of a target include are read once. The OWNER compiles them for targets with the same options. Files with
# compiler options of their own include them as usual. Call it when all options are set.
function(flux2_precompile owner)
    cmake_parse_arguments(precompile "" "" "HEADERS;FOR" ${ARGN})
    if(NOT FLUX2_COMPILE_TOGETHER)
        return()
    endif()
    target_precompile_headers(${owner} PRIVATE ${precompile_HEADERS})
    foreach(target IN LISTS precompile_FOR)
        target_precompile_headers(${target} REUSE_FROM ${owner})
    endforeach()
    foreach(target IN LISTS owner precompile_FOR)
        get_target_property(sources ${target} SOURCES)
        foreach(source IN LISTS sources)
            get_source_file_property(options ${source} COMPILE_OPTIONS)
            if(options)
                set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
            endif()
        endforeach()
    endforeach()
endfunction()
