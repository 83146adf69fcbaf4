# Unpacks the pinned ggml once into the build tree and says where: from npm, else by git.
function(flux2_fetch_ggml result)
    set(source ${CMAKE_BINARY_DIR}/_deps/llama.cpp-${FLUX2_GGML_GIT_TAG})
    set(${result} ${source}/ggml PARENT_SCOPE)
    if(EXISTS ${source}/ggml/CMakeLists.txt)
        return()
    endif()

    find_package(Git REQUIRED)
    find_program(FLUX2_NPM npm)
    set(clone ${GIT_EXECUTABLE} -c advice.detachedHead=false clone --quiet)
    set(unpacking ${source}.unpacking)
    file(REMOVE_RECURSE ${unpacking})
    if(FLUX2_NPM)
        flux2_download_bundle(bundle)
        execute_process(COMMAND ${clone} ${bundle} ${unpacking}
                        RESULT_VARIABLE status ERROR_VARIABLE log OUTPUT_VARIABLE log)
    else()
        message(STATUS "npm is absent: taking ggml from ${FLUX2_GGML_GIT_REPOSITORY}")
        execute_process(COMMAND ${clone} --depth 1 --branch ${FLUX2_GGML_GIT_TAG} ${FLUX2_GGML_GIT_REPOSITORY} ${unpacking}
                        RESULT_VARIABLE status ERROR_VARIABLE log OUTPUT_VARIABLE log)
    endif()
    if(NOT status EQUAL 0 OR NOT EXISTS ${unpacking}/ggml/CMakeLists.txt)
        message(FATAL_ERROR "ggml ${FLUX2_GGML_VERSION} could not be unpacked: ${log}\n"
            "Install npm or connect to the internet, or pass -DFLUX2_GGML_DIR with a ggml source folder.")
    endif()
    file(RENAME ${unpacking} ${source})
endfunction()

# Downloads the npm package, checks its hash and says where its git bundle lies.
function(flux2_download_bundle result)
    set(folder ${CMAKE_BINARY_DIR}/_deps/npm)
    set(archive ${folder}/${FLUX2_GGML_NPM_PACKAGE}-${FLUX2_GGML_NPM_VERSION}.tgz)
    file(MAKE_DIRECTORY ${folder})
    message(STATUS "Downloading ggml ${FLUX2_GGML_VERSION} (npm ${FLUX2_GGML_NPM_PACKAGE} ${FLUX2_GGML_NPM_VERSION})")
    execute_process(COMMAND ${FLUX2_NPM} pack --silent ${FLUX2_GGML_NPM_PACKAGE}@${FLUX2_GGML_NPM_VERSION}
                    WORKING_DIRECTORY ${folder} RESULT_VARIABLE status ERROR_VARIABLE log OUTPUT_QUIET)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "npm could not download ${FLUX2_GGML_NPM_PACKAGE} ${FLUX2_GGML_NPM_VERSION}: ${log}")
    endif()
    file(SHA512 ${archive} found)
    if(NOT found STREQUAL FLUX2_GGML_NPM_SHA512)
        message(FATAL_ERROR "${archive} has SHA-512 ${found}, expected ${FLUX2_GGML_NPM_SHA512}. "
            "Delete it and configure again; if it stays, the registry serves another file than the pinned one.")
    endif()
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${folder} PATTERNS package/${FLUX2_GGML_BUNDLE})
    file(REMOVE ${archive})
    set(${result} ${folder}/package/${FLUX2_GGML_BUNDLE} PARENT_SCOPE)
endfunction()
