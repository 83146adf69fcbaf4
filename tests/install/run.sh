#!/usr/bin/env bash
# Installs a build into a temporary folder and uses it from outside: by find_package and by pkg-config.
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

libdir=$(dirname "$(find "$work/prefix" -name flux2.pc)")
flags=$(PKG_CONFIG_PATH=$libdir pkg-config --static --cflags --libs flux2)
# shellcheck disable=SC2086  # the flags are a list
c++ -std=c++20 "$here/consumer.cpp" -o "$work/consumer" $flags
by_pkg_config=$("$work/consumer")

echo "find_package: $by_cmake"
echo "pkg-config:   $by_pkg_config"
[ "$by_cmake" = "$by_pkg_config" ] && [ "$by_cmake" = "$("$work/prefix/bin/flux2-convert" --version | cut -d' ' -f2)" ]
