#!/usr/bin/env bash
# Installs the missing packages that the build needs. Silent and quick when nothing is missing.
# Usage: scripts/setup.sh [developer] [cross] [browser] [vulkan] [lavapipe]   "developer" adds ccache, clang-format, curl, clang and its runtime; "cross"
# (Linux) a compiler for the other architecture and qemu-user; "browser" (Linux) Chromium; "vulkan" headers, loader, shader compiler and
# drivers of Mesa, among them its software device; "lavapipe" (Linux) jemalloc, with which that device compiles shaders faster.
# FLUX2_SKIP_SETUP=1 skips everything; CMake then says what it cannot find.
set -eu
[ "${FLUX2_SKIP_SETUP:-0}" = 1 ] && exit 0
wanted=" $* "
wants() { [[ $wanted == *" $1 "* ]]; }

has_command() { command -v "$1" > /dev/null 2>&1; }
has_header() { # has_header PATH...: one of them exists below an include folder
    local folder path
    for folder in /usr/include /usr/local/include /opt/homebrew/include "/usr/include/$(uname -m)-linux-gnu"; do
        for path in "$@"; do
            [ -e "$folder/$path" ] && return 0
        done
    done
    return 1
}

# Each line: a test, then the package's name for apt and for brew ("-": comes with the system).
missing_apt=()
missing_brew=()
need() { # need APT BREW TEST...
    local apt=$1 brew=$2
    shift 2
    "$@" && return
    missing_apt+=("$apt")
    if [ "$brew" != - ]; then missing_brew+=("$brew"); fi
}
cxx_works() { has_command c++ || has_command g++ || has_command clang++; }
vulkan_driver() { compgen -G "/usr/share/vulkan/icd.d/*.json" > /dev/null || compgen -G "/opt/homebrew/etc/vulkan/icd.d/*.json" > /dev/null; }
has_jemalloc() { compgen -G "/usr/lib/*/libjemalloc.so.2" > /dev/null; }
clang_runtime() { compgen -G "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer*" > /dev/null; }

need cmake cmake has_command cmake
need g++ - cxx_works
need make - has_command make
need ninja-build ninja has_command ninja
need git git has_command git
need npm node has_command npm
need pkg-config pkg-config has_command pkg-config
need nlohmann-json3-dev nlohmann-json has_header nlohmann/json.hpp
need libcxxopts-dev cxxopts has_header cxxopts.hpp
need doctest-dev doctest has_header doctest/doctest.h
need libstb-dev - has_header stb/stb_image.h
need libeigen3-dev eigen has_header eigen3/Eigen/Core
need libutf8proc-dev utf8proc has_header utf8proc.h
need libwebp-dev webp has_header webp/encode.h
need liblcms2-dev little-cms2 has_header lcms2.h
need libtomlplusplus-dev tomlplusplus has_header toml++/toml.h
if [ "$(uname)" != Darwin ]; then
    need libssl-dev - has_header openssl/evp.h
elif has_command brew && ! brew --prefix --installed openssl@3 > /dev/null 2>&1; then
    missing_brew+=(openssl@3)
fi
if wants developer; then
    need ccache ccache has_command ccache
    need clang-format clang-format has_command clang-format
    need curl curl has_command curl
    if [ "$(uname)" != Darwin ]; then
        need clang - has_command clang++
        need libclang-rt-14-dev - clang_runtime
    fi
fi
if wants cross; then
    case $(uname -m) in
        x86_64) need g++-aarch64-linux-gnu - has_command aarch64-linux-gnu-g++ ;;
        *) need g++-x86-64-linux-gnu - has_command x86_64-linux-gnu-g++ ;;
    esac
    need qemu-user - has_command qemu-aarch64
fi
if wants browser && [ -z "${FLUX2_CHROMIUM:-}" ]; then
    need chromium - test -x /usr/bin/chromium
fi

if wants vulkan; then
    need libvulkan-dev vulkan-loader has_header vulkan/vulkan.hpp
    need glslc shaderc has_command glslc
    need spirv-headers spirv-headers has_header spirv/unified1/spirv.hpp
    need mesa-vulkan-drivers molten-vk vulkan_driver
fi
if wants lavapipe && [ "$(uname)" = Linux ]; then
    need libjemalloc2 - has_jemalloc
fi

case $(uname) in
    Darwin)
        [ ${#missing_brew[@]} -eq 0 ] && exit 0
        if has_command brew; then
            exec brew install --quiet "${missing_brew[@]}"
        fi
        echo "Homebrew is not installed. Install it, then: brew install ${missing_brew[*]}" >&2
        exit 1
        ;;
esac
[ ${#missing_apt[@]} -eq 0 ] && exit 0
if ! has_command apt-get; then
    echo "Please install the equivalents of these Debian packages: ${missing_apt[*]}" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
    if ! has_command sudo; then
        echo "Please run as root: apt-get install ${missing_apt[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "Installing ${missing_apt[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" apt-get install -y --no-install-recommends "${missing_apt[@]}"; } > "$log" 2>&1; then
    cat "$log" >&2
    echo "apt-get could not install ${missing_apt[*]}; see above" >&2
    exit 1
fi
rm -f "$log"
