#!/usr/bin/env bash
# Adds ggml's Vulkan backend to a finished build, from the distribution's packages, and runs flux2 on Mesa's software device (lavapipe):
# the recorded networks, a recorded picture in Q4_K and its first step in three more types, the first steps of an edit and of a picture
# with guidance, a picture also with streamed weights, and what does not fit into small buffers.
# Usage: tests/vulkan/run.sh BUILD_FOLDER [all]   all: every recording in four types
#   Only the backend is compiled (without "all" only the shaders that these runs use), and flux2 linked again, as
#   BUILD_FOLDER/bin/flux2-vulkan; the build is left without Vulkan.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
extent=${2:-short}
work=$build/vulkan
"$root/scripts/setup.sh" vulkan lavapipe
rm -rf "$work"
mkdir -p "$work"

relink() { # ON|OFF [OPTION...]
    cmake "$build" -DFLUX2_VULKAN="$1" "${@:2}" > "$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
    cmake --build "$build" --target flux2-cli -j "$(nproc)" > "$work/build.log" 2>&1 || { tail -n 60 "$work/build.log"; exit 1; }
}
relink_without() { # and without the backend that has only some shaders
    relink OFF -UVulkan_GLSLC_EXECUTABLE -UFLUX2_QUICK_VULKAN
    [ "$extent" = all ] || rm -rf "$build/ggml/ggml/src/ggml-vulkan"
}
fail() {
    echo "tests/vulkan: $*" >&2
    exit 1
}
options=()
if [ "$extent" != all ]; then
    options=(-DFLUX2_QUICK_VULKAN=ON "-DVulkan_GLSLC_EXECUTABLE=$root/tests/vulkan/used_shaders.sh")
    export EMPTY_SHADER=$work/empty.spv
    printf '#version 450\nvoid main() {}\n' | glslc -fshader-stage=compute -o "$EMPTY_SHADER" -
fi
start=$SECONDS
trap relink_without EXIT
relink ON "${options[@]}"
cp "$build/bin/flux2" "$build/bin/flux2-vulkan"
trap - EXIT
relink_without
echo "built in $((SECONDS - start)) s"
if grep -q 'AVAILABLE_BACKENDS ".*ggml-vulkan' "$build/ggml/ggml/ggml-config.cmake"; then
    fail "the package that this build installs still needs Vulkan"
fi
flux2=$build/bin/flux2-vulkan

# ---- The device. Compiled shaders are kept for the runs that follow, here and in other folders, apart from those of other programs.
export MESA_SHADER_CACHE_DIR=${FLUX2_CI_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/flux2-ci}/shaders
mkdir -p "$MESA_SHADER_CACHE_DIR"
VK_DRIVER_FILES=$("$root/tests/vulkan/newer_mesa.sh" "$work/mesa")
export VK_DRIVER_FILES
export VK_ICD_FILENAMES=$VK_DRIVER_FILES  # of loaders before 1.3.207
device=$([ "$(uname -m)" != aarch64 ] || grep -q '^Features.* sve' /proc/cpuinfo || echo -DSVE_IS_HIDDEN)
[ "$extent" = all ] || device+=" -DLEAST_SHARED_MEMORY"
# shellcheck disable=SC2086  # a list of options
cc -shared -fPIC -O1 $device -o "$work/software_device.so" "$root/tests/vulkan/software_device.c"
# Compiling shaders is mostly allocating small pieces of memory, which jemalloc does faster.
export LD_PRELOAD="$work/software_device.so $(compgen -G "/usr/lib/*/libjemalloc.so.2" | head -n 1)"
export LP_NATIVE_VECTOR_WIDTH=128  # as on Arm: on x86 shaders of 256 bits take longer to compile

# ---- Which device is used: never this one unless it is named.
export GGML_VK_VISIBLE_DEVICES=0  # ggml itself leaves software devices out otherwise
"$flux2" devices | tee "$work/devices.txt"
grep -q "^Vulkan0: llvmpipe.*; software, used only when --device names it" "$work/devices.txt" || fail "Mesa's software device is not listed as such"
"$flux2" plan -p "a house" -W 64 -H 64 2> /dev/null | grep -q "^transformer  *CPU " || fail "a software device was chosen without being named"

# ---- Runs: a line each when they pass, everything they printed when not.
run_one() { # NAME ENVIRONMENT ARGUMENTS...
    local name=$1 environment=$2 log begun=$SECONDS
    shift 2
    log=$work/$name.log
    # shellcheck disable=SC2086  # a list of settings
    if env $environment "$flux2" "$@" > "$log" 2>&1; then
        echo "$name: $(tail -n 1 "$log") ($((SECONDS - begun)) s)"
    else
        printf '%s: flux2 %s failed (exit code %s):\n' "$name" "$*" "$?"
        cat "$log"
        return 1
    fi
}
export -f run_one
export work flux2

# The recordings of the text encoder and all others: two runs that begin with different shaders. And those whose parts fit into the
# smallest buffers below.
recordings=$build/share/flux2/selftest
mkdir "$work/text" "$work/pictures" "$work/networks"
ln -s "$recordings"/text_encoder.* "$work/text/"
ln -s "$recordings"/* "$work/pictures/"
rm "$work/pictures/text_encoder.safetensors"
ln -s "$recordings"/{vae,flux2}.* "$recordings/text_encoder.golden.safetensors" "$work/networks/"

selftest="LP_NUM_THREADS=1 selftest --device Vulkan0"
replay="$selftest -m $root/models/tiny --replay $build/fixtures/tiny/golden"
picture="--device Vulkan0 -W 64 -H 64 --steps 2 -s 1 -p house --no-cache"
# Those that compile the most shaders come first: most of the time is theirs.
runs=("golden-text $selftest --golden $work/text" "golden-pictures $selftest --golden $work/pictures")
# Decoding takes most of a replay. F16 and Q8_0 decode as Q4_K does, and the golden sets decode in F32: unless all is asked for, one
# recording is replayed whole in one type, and the others, and it in the other types, up to their first step.
for type in Q4_K Q8_0 F16 F32; do
    for recording in t2i edit base; do
        first="--steps 1"
        if [ "$extent" = all ] || [ "$type $recording" = "Q4_K t2i" ]; then
            first=
        elif [ "$type" != Q4_K ] && [ "$recording" != t2i ]; then
            continue
        fi
        runs+=("replay-$recording-$type $replay-$recording.safetensors --type $type $first")
    done
    if [ "$extent" = all ]; then
        runs+=("golden-$type $selftest --type $type")
    fi
done
runs+=("picture LP_NUM_THREADS=1 $picture -o $work/picture.bmp"
    "golden-small-buffers GGML_VK_FORCE_MAX_BUFFER_SIZE=131072 selftest --device Vulkan0 --golden $work/networks"
    "picture-streamed GGML_VK_FORCE_MAX_BUFFER_SIZE=1300000 $picture --max-vram 13M -o $work/streamed.bmp"
    "picture-small-buffers GGML_VK_FORCE_MAX_BUFFER_SIZE=1048576 $picture -o $work/small.png")
printf '%s\n' "${runs[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one {}'

# ---- What does not fit is placed on the CPU, which a line says.
for log in golden-small-buffers picture-small-buffers; do
    grep -q "stay in RAM and are computed with on the CPU: Vulkan0" "$work/$log.log" || fail "$log: no line about weights in RAM"
    grep -q "Vulkan0 cannot compute .* they run on the CPU" "$work/$log.log" || fail "$log: no line about operations on the CPU"
done
if grep -q "cannot compute" "$work/picture.log"; then
    fail "operations run on the CPU though the device has room"
fi
"$flux2" info "$work/small.png" > "$work/small.txt"
grep -q "picture: 64x64" "$work/small.txt" && grep -q '"device":"Vulkan0"' "$work/small.txt" || fail "small.png is not the picture asked for"

# ---- Streamed weights, in slots of several buffers, give the same picture to the bit: operations keep their order.
# shellcheck disable=SC2086  # a list of options
"$flux2" plan $picture --max-vram 13M 2> /dev/null | grep -q "^transformer  *streamed to Vulkan0" || fail "13M do not make it stream"
cmp "$work/picture.bmp" "$work/streamed.bmp"
echo "Vulkan: all passed"
