# What makes a build from nothing shorter: files are compiled together, and common headers once. FLUX2_COMPILE_TOGETHER=OFF turns both
# off, for those who work on the code. Builds that run for seconds also leave optimisation out. Where ccache is installed, it keeps what
# was compiled.

# ccache takes paths below this folder as relative to it, so that one clone finds what another has compiled. FLUX2_CCACHE=OFF leaves it out.
if(FLUX2_CCACHE AND NOT MSVC AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(FLUX2_CCACHE_PROGRAM ccache)
    if(FLUX2_CCACHE_PROGRAM)
        foreach(language C CXX CUDA)
            set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_ABSSTDERR=1
                CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${FLUX2_CCACHE_PROGRAM})
        endforeach()
        # Clang's precompiled headers contain absolute paths and times of the headers: one out of another clone, or from before this
        # clone's headers, is refused. GCC's go by their contents.
        if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
            set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
        endif()
    endif()
endif()

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
