#!/usr/bin/env bash
# Fails when an include looks up the stairs. The table is the one in docs/architecture.md.
set -u
cd "$(dirname "$0")/.."
status=0

# Includes of our own rooms ("room/file.hpp") in folder or file $1 must match $2, or be the single header $4; ggml is allowed
# when $3 is yes.
check_room() {
    local folder=$1 allowed=$2 ggml=$3 also=${4:-none} found
    [ -e "$folder" ] || return 0
    found=$(grep -rnE '^#include "[a-z_]+/' "$folder" --include='*.[ch]pp' --include='*.cu' --include='*.cuh' | grep -vE "#include \"(($allowed)/|$also)")
    if [ "$ggml" = no ]; then
        found+=$(grep -rnE '^#include [<"](ggml|gguf)' "$folder" --include='*.[ch]pp')
    fi
    if [ -n "$found" ]; then
        printf '%s looks where it may not (allowed: %s; ggml: %s):\n%s\n' "$folder" "$allowed" "$ggml" "$found" >&2
        status=1
    fi
}

check_room flux2/base 'base' no
check_room flux2/image 'base|image' no
check_room flux2/text 'base|text' no
check_room flux2/formats 'base|formats' yes
check_room flux2/checkpoints 'base|formats|checkpoints' no
check_room flux2/compute 'base|formats|checkpoints|compute' yes
check_room flux2/models 'base|compute|models' yes checkpoints/inventory.hpp
check_room flux2/pipeline 'base|image|text|formats|checkpoints|compute|models|pipeline' yes
check_room flux2/c_api.cpp 'base' no
check_room convert 'base|formats|checkpoints' no
check_room examples/minimal none no
# Of the flux2 program, what measures or compares may look inside; the rest may not.
for file in $(ls examples/cli/*.[ch]pp | grep -vE '/(bench|flops|layout_check|op_check|profile|raw_speed|type_speed|selftest|replay|recording|model_hash)\.'); do
    check_room "$file" base no formats/json_file.hpp
done

# In formats/ only the files about ggml's own formats know ggml.
found=$(grep -rlE '^#include [<"](ggml|gguf)' flux2/formats | grep -vE 'formats/(gguf_file|gguf_writer|tensor_type)\.cpp$')
# Public headers know the standard library and each other.
found+=$(grep -rnE '^#include' flux2/include | grep -vE '#include <(flux2/[a-z_]+\.(hpp|h)|[a-z_]+(\.h)?)>')
if [ -n "$found" ]; then
    printf 'These includes do not belong there:\n%s\n' "$found" >&2
    status=1
fi
exit $status
