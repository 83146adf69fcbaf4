#!/usr/bin/env bash
# Rules about layers that the build does not check. Which layer may include which others is in the CMake files
# (cmake/layers.cmake), and a forbidden include does not compile.
set -u
cd "$(dirname "$0")/.."
# In formats/ only the files about ggml's own formats include ggml.
found=$(grep -rlE '^#include [<"](ggml|gguf)' flux2/formats | grep -vE 'formats/(gguf_file|gguf_writer|tensor_type)\.cpp$')
# Public headers include only the standard library and each other.
found+=$(grep -rnE '^#include' flux2/include | grep -vE '#include <(flux2/[a-z_]+\.(hpp|h)|[a-z_]+(\.h)?)>')
# Our own headers are included by their folder, never by a relative path through other folders.
found+=$(grep -rnE '^#include "\.\.?/' flux2 convert examples tests --include='*.[ch]pp' --include='*.cu' --include='*.cuh')
if [ -n "$found" ]; then
    printf 'These includes do not belong there:\n%s\n' "$found" >&2
    exit 1
fi
# The library names settings (flux2/setting.hpp), never the options of a program: in texts and comments there is no --name and
# no -m FOLDER.
found=$(grep -rnE '("|//).*(--[a-z]|-[a-zA-Z] [A-Z]{2})' flux2 --include='*.h' --include='*.[ch]pp' --include='*.cu' --include='*.cuh')
if [ -n "$found" ]; then
    printf 'The library names options of a program here; name a Setting:\n%s\n' "$found" >&2
    exit 1
fi
