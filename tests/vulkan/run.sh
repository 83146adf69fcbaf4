#!/usr/bin/env bash
# Adds ggml's Vulkan backend to a finished build, from the distribution's packages, and runs flux2 on Mesa's software device (lavapipe):
# recorded networks and runs, the first step of a recorded picture in four types, a picture also with streamed weights, and what does
# not fit into small buffers.
# Operations that take a workgroup per row take lavapipe a millisecond per row, so the rest of the recordings is for `all`, which takes far longer.
# Usage: tests/vulkan/run.sh BUILD_FOLDER [all]
#   Only the backend is compiled, and flux2 linked again, as BUILD_FOLDER/bin/flux2-vulkan; the build is left without Vulkan.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
extent=${2:-short}
work=$build/vulkan
"$root/scripts/setup.sh" vulkan
rm -rf "$work"
mkdir -p "$work"

relink() { # ON|OFF
    cmake "$build" -DFLUX2_VULKAN="$1" > "$work/configure.log" 2>&1 || { cat "$work/configure.log"; exit 1; }
    cmake --build "$build" --target flux2-cli -j "$(nproc)" > "$work/build.log" 2>&1 || { tail -n 60 "$work/build.log"; exit 1; }
}
start=$SECONDS
trap 'relink OFF' EXIT
relink ON
cp "$build/bin/flux2" "$build/bin/flux2-vulkan"
trap - EXIT
relink OFF
echo "built in $((SECONDS - start)) s"
flux2=$build/bin/flux2-vulkan

fail() {
    echo "tests/vulkan: $*" >&2
    exit 1
}

# ---- Compiled shaders are kept for the runs that follow, apart from those of other programs.
export MESA_SHADER_CACHE_DIR=$work/shaders
driver=$(sed -n 's/.*"library_path": *"\([^"]*\)".*/\1/p' /usr/share/vulkan/icd.d/lvp_icd.*.json)
if [ "$(uname -m)" = aarch64 ] && ldd "$driver" | grep -q libLLVM-15; then
    hidden=$(grep -q '^Features.* sve' /proc/cpuinfo || echo -DSVE_IS_HIDDEN)
    cc -shared -fPIC -O1 $hidden -o "$work/mesa_on_arm.so" "$root/tests/vulkan/mesa_on_arm.c"
    export LD_PRELOAD=$work/mesa_on_arm.so
fi

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

recorded=$build/share/flux2/selftest
folder_of() { # NAME FILES...: recordings of a part of the networks
    mkdir -p "$work/$1"
    local file
    for file in "${@:2}"; do
        ln -s "$recorded/$file" "$work/$1/"
    done
}
networks=(vae.safetensors vae.golden.safetensors flux2.safetensors flux2.golden.safetensors text_encoder.golden.safetensors)
folder_of networks "${networks[@]}"
folder_of edit "${networks[@]}" pipeline_kv_edit2.golden.safetensors ref_0.png ref_1.png

picture="--device Vulkan0 -W 64 -H 64 --steps 2 -s 1 -p house"
runs=()
if [ "$extent" = all ]; then
    for type in F32 F16 Q8_0 Q4_K; do
        runs+=("golden-$type LP_NUM_THREADS=1 selftest --device Vulkan0 --type $type")
        for run in t2i edit base; do
            runs+=("replay-$run-$type LP_NUM_THREADS=1 selftest --device Vulkan0 --type $type -m $root/models/tiny --replay $build/fixtures/tiny/golden-$run.safetensors")
        done
    done
else
    runs+=("golden LP_NUM_THREADS=1 selftest --device Vulkan0 --golden $work/edit")
    for type in F32 F16 Q8_0 Q4_K; do
        runs+=("replay-$type LP_NUM_THREADS=1 selftest --device Vulkan0 --type $type -m $root/models/tiny --replay $build/fixtures/tiny/golden-t2i.safetensors --steps 1")
    done
fi
runs+=("golden-small-buffers GGML_VK_FORCE_MAX_BUFFER_SIZE=131072 selftest --device Vulkan0 --golden $work/networks"
    "picture LP_NUM_THREADS=1 $picture --no-cache -o $work/picture.bmp"
    "picture-streamed GGML_VK_FORCE_MAX_BUFFER_SIZE=1300000 $picture --no-cache --max-vram 13M -o $work/streamed.bmp"
    "picture-small-buffers GGML_VK_FORCE_MAX_BUFFER_SIZE=1048576 $picture --no-cache -o $work/small.png")
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
