#!/usr/bin/env bash
# Installs a build into a temporary folder and uses it from outside, from C++ and C: by find_package and by pkg-config.
# Usage: tests/install/run.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" > "$work/install.log"
"$work/prefix/bin/flux2-convert" --version
"$work/prefix/bin/flux2" selftest > "$work/selftest.log" || { cat "$work/selftest.log"; exit 1; }
tail -n 1 "$work/selftest.log"

cmake -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" > "$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build" > "$work/build.log" || { cat "$work/build.log"; exit 1; }
by_cmake=$("$work/build/consumer")
by_cmake_c=$("$work/build/consumer_c")

libdir=$(dirname "$(find "$work/prefix" -name flux2.pc)")
flags=$(PKG_CONFIG_PATH=$libdir pkg-config --static --cflags --libs flux2)
# shellcheck disable=SC2086  # the flags are a list
c++ -std=c++20 "$here/consumer.cpp" -o "$work/consumer" $flags
by_pkg_config=$("$work/consumer")
# shellcheck disable=SC2086
cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$here/consumer.c" -o "$work/consumer_c" $flags
by_pkg_config_c=$("$work/consumer_c")

echo "find_package: $by_cmake, from C $by_cmake_c"
echo "pkg-config:   $by_pkg_config, from C $by_pkg_config_c"
[ "$by_cmake" = "$by_pkg_config" ] && [ "$by_cmake" = "$by_cmake_c" ] && [ "$by_cmake" = "$by_pkg_config_c" ] && [ "$by_cmake" = "$("$work/prefix/bin/flux2-convert" --version | cut -d' ' -f2)" ]
