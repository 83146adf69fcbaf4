#!/usr/bin/env bash
# Installs a build into a temporary folder and uses it from an external project, from C++ and C: by find_package and by pkg-config.
# With "shared", the same with the library as a shared one, which is built here without optimisation, with the ggml of that build.
# Usage: tests/install/run.sh BUILD_FOLDER [shared]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { # COMMAND...: shows what it prints only when it fails
    "$@" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")

# use_package PREFIX NAME PKG_CONFIG_OPTION...: builds an external project with the package and checks its version.
use_package() {
    local prefix=$1 name=$2 flags
    shift 2
    quietly cmake -S "$here" -B "$work/$name" -DCMAKE_PREFIX_PATH="$prefix"
    quietly cmake --build "$work/$name"
    flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name flux2.pc)") pkg-config "$@" --cflags --libs flux2)
    # shellcheck disable=SC2086  # the flags are a list
    c++ -std=c++20 "$here/consumer.cpp" -o "$work/$name/by_pkg_config" $flags
    # shellcheck disable=SC2086
    cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$here/consumer.c" -o "$work/$name/by_pkg_config_c" $flags
    for program in consumer consumer_c by_pkg_config by_pkg_config_c; do
        local told
        told=$(LD_LIBRARY_PATH=$(dirname "$(find "$prefix" -name 'libflux2.*' | head -n 1)") "$work/$name/$program")
        [ "$told" = "$version" ] || { echo "$name package, $program: version $told, expected $version"; exit 1; }
    done
    echo "$name package $version: by find_package and pkg-config, from C++ and C"
}

# What a shared library exports: every function of the C headers, and of C++ only what the public headers declare.
check_exports() { # LIBRARY HEADERS
    local library=$1 headers=$2 symbols name
    symbols=$(nm -D --defined-only "$library" | awk '{print $3}')
    if grep -vE '^(flux2_[a-z_]+|_ZNK?5flux2.*|_ZT[ISV]N5flux2.*)$' <<< "$symbols" || grep 4Impl <<< "$symbols"; then
        echo "$library exports these, which are not public"
        exit 1
    fi
    diff <(grep -E '^flux2_' <<< "$symbols" | sort) \
        <(sed -nE '/^FLUX2_API/s/.*[ *](flux2_[a-z_]+)\(.*/\1/p' "$headers"/*.h | sort)
    for name in $(grep -E '^_Z' <<< "$symbols" | c++filt | sed -E 's/^(vtable|typeinfo|typeinfo name) for //; s/\(.*//; s/\[.*//' |
        grep -oE 'flux2::[A-Za-z_:~]+' | sed 's/::/ /g; s/~//g'); do
        grep -qrw "$name" "$headers" || { echo "$library exports $name, which is in no public header"; exit 1; }
    done
    echo "$(wc -l <<< "$symbols") exported symbols, all of them flux2's public ones"
}

quietly cmake --install "$build" --prefix "$work/prefix"
"$work/prefix/bin/flux2-convert" --version
"$work/prefix/bin/flux2" selftest > "$work/selftest.log" || { cat "$work/selftest.log"; exit 1; }
tail -n 1 "$work/selftest.log"
use_package "$work/prefix" static --static
[ "${2:-}" = shared ] || exit 0

quietly cmake -S "$source" -B "$build/shared" -DBUILD_SHARED_LIBS=ON -DFLUX2_GGML_BUILD="$build" -DFLUX2_BUILD_TESTS=OFF \
    -DFLUX2_BUILD_CONVERT=OFF -DFLUX2_BUILD_SERVER=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0
quietly cmake --build "$build/shared" --target flux2 -j "$(getconf _NPROCESSORS_ONLN)"
quietly cmake --install "$build/shared" --prefix "$work/shared-prefix" --component library
use_package "$work/shared-prefix" shared
if [ "$(uname)" = Linux ]; then
    check_exports "$(find "$work/shared-prefix" -name libflux2.so)" "$work/shared-prefix/include/flux2"
fi
