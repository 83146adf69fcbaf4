# cpp-httplib for flux2-server and downloads, in this order: FLUX2_HTTPLIB_DIR, beside ggml's source (the pinned npm package brings both),
# else fetched by git at a pinned tag. Its compiled library comes from the build whose ggml is linked, if that has one. Exposes target
# flux2::httplib. It must be 0.50 or newer: older ones do not notice a closed client.
set(FLUX2_HTTPLIB_DIR "" CACHE PATH "A folder with httplib.h, and httplib.cpp where it is split")

set(httplib_folder ${FLUX2_HTTPLIB_DIR})
if(NOT httplib_folder)
    set(ggml_source ${FLUX2_GGML_SOURCE})
    if(FLUX2_GGML_BUILD)
        load_cache(${FLUX2_GGML_BUILD} READ_WITH_PREFIX built_ FLUX2_GGML_SOURCE)
        set(ggml_source ${built_FLUX2_GGML_SOURCE})
    endif()
    if(EXISTS ${ggml_source}/../vendor/cpp-httplib/httplib.h)
        set(httplib_folder ${ggml_source}/../vendor/cpp-httplib)
    endif()
endif()
if(NOT httplib_folder)
    FetchContent_Declare(httplib GIT_REPOSITORY https://github.com/yhirose/cpp-httplib.git GIT_TAG v0.57.0 GIT_SHALLOW ON
        SOURCE_SUBDIR without_cmake)
    FetchContent_MakeAvailable(httplib)
    set(httplib_folder ${httplib_SOURCE_DIR})
endif()
if(NOT EXISTS ${httplib_folder}/httplib.h)
    message(FATAL_ERROR "${httplib_folder} holds no httplib.h. Point -DFLUX2_HTTPLIB_DIR at a folder with cpp-httplib, or pass "
        "-DFLUX2_BUILD_SERVER=OFF -DFLUX2_BUILD_DOWNLOADS=OFF to build without the server and downloads.")
endif()

if(FLUX2_GGML_BUILD AND EXISTS ${FLUX2_GGML_BUILD}/libflux2_httplib.a)
    add_library(flux2_httplib INTERFACE)
    set(httplib_scope INTERFACE)
    target_link_libraries(flux2_httplib INTERFACE ${FLUX2_GGML_BUILD}/libflux2_httplib.a)
elseif(EXISTS ${httplib_folder}/httplib.cpp)
    add_library(flux2_httplib STATIC ${httplib_folder}/httplib.cpp)
    set(httplib_scope PUBLIC)
    target_compile_options(flux2_httplib PRIVATE $<IF:$<CXX_COMPILER_ID:MSVC>,/w,-w>)
    if(NOT MSVC)
        # Nothing in it takes time when it runs, but compiling it does.
        target_compile_options(flux2_httplib PRIVATE -O1 $<$<BOOL:${FLUX2_SANITIZE}>:-fno-sanitize=all>)
    endif()
else()
    add_library(flux2_httplib INTERFACE)
    set(httplib_scope INTERFACE)
endif()
add_library(flux2::httplib ALIAS flux2_httplib)
target_include_directories(flux2_httplib SYSTEM ${httplib_scope} ${httplib_folder})
# The same values wherever the header is included.
target_compile_definitions(flux2_httplib ${httplib_scope}
    CPPHTTPLIB_OPENSSL_SUPPORT
    CPPHTTPLIB_LISTEN_BACKLOG=512
    "CPPHTTPLIB_RECV_BUFSIZ=size_t{65536}"
    CPPHTTPLIB_TCP_NODELAY=1
    CPPHTTPLIB_MULTIPART_FORM_DATA_FILE_MAX_COUNT=128)
target_link_libraries(flux2_httplib ${httplib_scope} OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
if(WIN32)
    target_link_libraries(flux2_httplib ${httplib_scope} ws2_32 crypt32)
endif()
