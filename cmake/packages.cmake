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

# Picture files. Two headers; upstream has no tags, so a commit is pinned.
if(PKG_CONFIG_FOUND)
    pkg_check_modules(stb QUIET stb)
endif()
if(NOT stb_FOUND)
    FetchContent_Declare(stb GIT_REPOSITORY https://github.com/nothings/stb.git
        GIT_TAG 31c1ad37456438565541f4919958214b6e762fb4)
    FetchContent_MakeAvailable(stb)
    set(stb_INCLUDE_DIRS ${stb_SOURCE_DIR})
endif()
flux2_header_package(stb "${stb_INCLUDE_DIRS}")

# Matrices. Headers only: a fetched copy is used without its CMake file, which would add its tests.
find_package(Eigen3 QUIET NO_MODULE)
if(TARGET Eigen3::Eigen)
    get_target_property(eigen_INCLUDE_DIRS Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
else()
    FetchContent_Declare(eigen GIT_REPOSITORY https://gitlab.com/libeigen/eigen.git GIT_TAG 3.4.0 GIT_SHALLOW ON
        SOURCE_SUBDIR without_cmake)
    FetchContent_MakeAvailable(eigen)
    set(eigen_INCLUDE_DIRS ${eigen_SOURCE_DIR})
endif()
flux2_header_package(eigen "${eigen_INCLUDE_DIRS}")

# Unicode tables. Debian's package has no CMake file but one for pkg-config.
if(PKG_CONFIG_FOUND)
    pkg_check_modules(utf8proc QUIET IMPORTED_TARGET libutf8proc)
endif()
add_library(flux2_utf8proc INTERFACE)
add_library(flux2::utf8proc ALIAS flux2_utf8proc)
if(TARGET PkgConfig::utf8proc)
    target_link_libraries(flux2_utf8proc INTERFACE PkgConfig::utf8proc)
else()
    FetchContent_Declare(utf8proc GIT_REPOSITORY https://github.com/JuliaStrings/utf8proc.git GIT_TAG v2.10.0 GIT_SHALLOW ON)
    FetchContent_MakeAvailable(utf8proc)
    target_include_directories(flux2_utf8proc SYSTEM INTERFACE ${utf8proc_SOURCE_DIR})
    target_link_libraries(flux2_utf8proc INTERFACE utf8proc)
endif()

# WebP pictures. Not fetched: without it flux2 refuses a WebP with a sentence.
if(FLUX2_WEBP AND PKG_CONFIG_FOUND)
    pkg_check_modules(webp QUIET IMPORTED_TARGET libwebp>=1.0)
    pkg_check_modules(sharpyuv QUIET IMPORTED_TARGET libsharpyuv)  # what a static libwebp needs from version 1.3 on
endif()
add_library(flux2_webp INTERFACE)
add_library(flux2::webp ALIAS flux2_webp)
set(FLUX2_HAS_WEBP OFF)
if(TARGET PkgConfig::webp)
    set(FLUX2_HAS_WEBP ON)
    target_link_libraries(flux2_webp INTERFACE PkgConfig::webp $<TARGET_NAME_IF_EXISTS:PkgConfig::sharpyuv>)
elseif(FLUX2_WEBP AND NOT FLUX2_WEBP STREQUAL "AUTO")
    message(FATAL_ERROR "FLUX2_WEBP is ${FLUX2_WEBP}, but pkg-config does not find libwebp (Debian: libwebp-dev, Homebrew: webp)")
endif()

# Colour profiles in pictures. Not fetched: without it flux2 takes all pictures for sRGB, with a warning.
if(FLUX2_LCMS AND PKG_CONFIG_FOUND)
    pkg_check_modules(lcms QUIET IMPORTED_TARGET lcms2>=2.8)
endif()
add_library(flux2_lcms INTERFACE)
add_library(flux2::lcms ALIAS flux2_lcms)
set(FLUX2_HAS_LCMS OFF)
if(TARGET PkgConfig::lcms)
    set(FLUX2_HAS_LCMS ON)
    target_link_libraries(flux2_lcms INTERFACE PkgConfig::lcms)
elseif(FLUX2_LCMS AND NOT FLUX2_LCMS STREQUAL "AUTO")
    message(FATAL_ERROR "FLUX2_LCMS is ${FLUX2_LCMS}, but pkg-config does not find lcms2 (Debian: liblcms2-dev, Homebrew: little-cms2)")
endif()

# Dataset files of flux2-train, by headers alone. Not fetched: without it flux2-train takes folders and refuses a TOML file with a sentence.
if(FLUX2_BUILD_TRAIN AND FLUX2_TOML AND PKG_CONFIG_FOUND)
    pkg_check_modules(tomlplusplus QUIET tomlplusplus>=3.0)
endif()
set(FLUX2_HAS_TOML ${tomlplusplus_FOUND})
if(FLUX2_HAS_TOML)
    flux2_header_package(toml "${tomlplusplus_INCLUDE_DIRS}")
elseif(FLUX2_BUILD_TRAIN AND FLUX2_TOML AND NOT FLUX2_TOML STREQUAL "AUTO")
    message(FATAL_ERROR "FLUX2_TOML is ${FLUX2_TOML}, but pkg-config does not find tomlplusplus (Debian: libtomlplusplus-dev, Homebrew: tomlplusplus)")
endif()

if(FLUX2_BUILD_TESTS)
    find_package(doctest 2.4 QUIET)
    if(NOT TARGET doctest::doctest)
        FetchContent_Declare(doctest GIT_REPOSITORY https://github.com/doctest/doctest.git GIT_TAG v2.4.11 GIT_SHALLOW ON)
        FetchContent_MakeAvailable(doctest)
    endif()
endif()

# SHA-256 of model files. Too large to fetch and build: it must be installed.
if(APPLE AND NOT OPENSSL_ROOT_DIR)
    execute_process(COMMAND brew --prefix openssl@3 OUTPUT_VARIABLE OPENSSL_ROOT_DIR
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_package(OpenSSL 1.1 REQUIRED COMPONENTS Crypto)
if(FLUX2_BUILD_SERVER OR FLUX2_BUILD_DOWNLOADS)
    find_package(OpenSSL 3.0 REQUIRED COMPONENTS SSL Crypto)  # what cpp-httplib needs for TLS
endif()
