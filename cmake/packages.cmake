# Third-party packages: the installed one if there is one, else fetched by git at a pinned tag (needs the internet).
include(FetchContent)
find_package(PkgConfig QUIET)

# Makes target flux2::NAME from a header-only tree that has no CMake file of its own.
function(flux2_header_package name include_dir)
    add_library(flux2_${name} INTERFACE)
    target_include_directories(flux2_${name} SYSTEM INTERFACE ${include_dir})
    add_library(flux2::${name} ALIAS flux2_${name})
endfunction()

find_package(nlohmann_json 3.10 QUIET)
if(NOT TARGET nlohmann_json::nlohmann_json)
    FetchContent_Declare(nlohmann_json GIT_REPOSITORY https://github.com/nlohmann/json.git GIT_TAG v3.11.3 GIT_SHALLOW ON)
    FetchContent_MakeAvailable(nlohmann_json)
endif()

find_package(cxxopts 3.0 QUIET)
if(NOT TARGET cxxopts::cxxopts)
    FetchContent_Declare(cxxopts GIT_REPOSITORY https://github.com/jarro2783/cxxopts.git GIT_TAG v3.1.1 GIT_SHALLOW ON)
    FetchContent_MakeAvailable(cxxopts)
endif()

if(FLUX2_BUILD_TESTS)
    find_package(doctest 2.4 QUIET)
    if(NOT TARGET doctest::doctest)
        FetchContent_Declare(doctest GIT_REPOSITORY https://github.com/doctest/doctest.git GIT_TAG v2.4.11 GIT_SHALLOW ON)
        FetchContent_MakeAvailable(doctest)
    endif()
endif()

# SHA-256 of source checkpoints. Too large to fetch and build: it must be installed.
if(APPLE AND NOT OPENSSL_ROOT_DIR)
    execute_process(COMMAND brew --prefix openssl@3 OUTPUT_VARIABLE OPENSSL_ROOT_DIR
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_package(OpenSSL 1.1 REQUIRED COMPONENTS Crypto)
