#!/usr/bin/env bash
# Builds flux2 for the other architecture (aarch64 on x86-64, x86-64 on aarch64) and runs it under qemu-user as old and new
# CPUs: every operation and weight layout against its plain form, and the first step of a recorded picture in four types (the
# other steps and decoding take minutes under emulation and consist of the same operations). ggml's own code is specialised when it
# is compiled, so it is compiled once per instruction set; ours checks the CPU at run time.
# Usage: tests/cross/run.sh BUILD_FOLDER [aarch64|x86_64]
#   BUILD_FOLDER is a finished build for this machine: its ggml source and recordings are used. The architecture of this
#   machine may be named too: then its old CPUs are tested.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
native=$(cd "$1" && pwd)
case $(uname -m) in
    x86_64) other=aarch64 ;;
    *) other=x86_64 ;;
esac
cpu=${2:-$other}
build=$root/build-cross/$cpu
"$root/scripts/setup.sh" cross

# A level: its name, the CPUs that run it, then ggml's options.
x86_off=(-DGGML_SSE42=ON -DGGML_AVX=OFF -DGGML_AVX2=OFF -DGGML_FMA=OFF -DGGML_F16C=OFF -DGGML_BMI2=OFF)
x86_on=(-DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)
case $cpu in
    aarch64)
        debian=arm64
        # Without SVE, which is ten times slower under emulation.
        levels=("armv8 cortex-a72 -DGGML_CPU_ARM_ARCH=armv8-a"
            "armv8.2 neoverse-n1 -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16"
            "armv8.6 max -DGGML_CPU_ARM_ARCH=armv8.6-a+dotprod+fp16+i8mm")
        ;;
    x86_64)
        debian=amd64
        levels=("sse4.2 Nehalem ${x86_off[*]}" "avx2 Haswell,max ${x86_on[*]}")
        ;;
    *)
        echo "unknown architecture $cpu; use aarch64 or x86_64" >&2
        exit 2
        ;;
esac
"$here/sysroot.sh" "$debian" "$build/sysroot"

build_level() { # NAME OPTIONS...: leaves $build/flux2-NAME
    local name=$1 begun=$SECONDS
    shift
    cmake -S "$root" -B "$build" -DCMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake" -DFLUX2_CROSS="$cpu" -DFLUX2_SYSROOT="$build/sysroot" \
        -DFLUX2_GGML_DIR="$(sed -n 's/^FLUX2_GGML_SOURCE:INTERNAL=//p' "$native/CMakeCache.txt")" -DFLUX2_BUILD_TESTS=OFF \
        -DFLUX2_BUILD_CONVERT=OFF -DFLUX2_BUILD_SERVER=OFF -DFLUX2_BUILD_DOWNLOADS=OFF -DFLUX2_RPC=OFF -DFLUX2_WERROR=ON \
        -DFLUX2_OPTIMISE_ONLY_KERNELS=ON "$@" > "$build/configure.log" 2>&1 || { cat "$build/configure.log"; exit 1; }
    cmake --build "$build" --target flux2-cli -j "$(nproc)" > "$build/build.log" 2>&1 || { tail -n 60 "$build/build.log"; exit 1; }
    cp "$build/bin/flux2" "$build/flux2-$name"
    echo "flux2 with ggml for $name: built in $((SECONDS - begun)) s"
}

# One run: a line when it passes, everything it printed when not.
run_one() { # CPU LEVEL ARGUMENTS...
    local as=$1 level=$2 log begun=$SECONDS
    shift 2
    log=$(mktemp)
    if "qemu-$cpu" -cpu "$as" -L "/usr/$cpu-linux-gnu" "$build/flux2-$level" selftest --device CPU --threads 1 "$@" > "$log" 2>&1; then
        echo "$as, ggml for $level, $(basename "${1#--}") ${*: -1}: $(tail -n 1 "$log") ($((SECONDS - begun)) s)"
    else
        printf '%s, ggml for %s, selftest %s failed (exit code %s):\n' "$as" "$level" "$*" "$?"
        cat "$log"
        return 1
    fi
}
export -f run_one
export cpu build

# Quantised to Q4_K by this machine: under emulation that takes twice as long as the run itself.
mkdir -p "$build/tiny-Q4_K"
for part in flux2-tiny text-encoder; do
    "$native/bin/flux2-convert" "$root/models/tiny/$part-bf16.gguf" -o "$build/tiny-Q4_K/$part.gguf" --type Q4_K_S > "$build/convert.log" 2>&1 \
        || { cat "$build/convert.log"; exit 1; }
done
ln -sf "$root/models/tiny/vae-bf16.gguf" "$build/tiny-Q4_K/vae.gguf"

# The longest runs come first, so that none of them is left alone at the end. The longest of all are multiplies with Arm's matrix
# instructions of BF16, which qemu computes one number at a time: one replay takes them, those in Q4_0 and Q4_K take the
# instructions for 8-bit integers of the same CPU.
longest=()
all_operations=()
replays=()
for level in "${levels[@]}"; do
    read -r name cpus options <<< "$level"
    # shellcheck disable=SC2086  # the options are a list
    build_level "$name" $options
    for as in ${cpus//,/ }; do
        all_operations+=("run_one $as $name --ops")
        replay="run_one $as $name --replay $native/fixtures/tiny/golden-t2i.safetensors --steps 1 -m"
        declare -n list=$([ "$as" = max ] && echo longest || echo replays)
        list+=("$replay $root/models/tiny --type Q8_0")
        replays+=("$replay $root/models/tiny --type F32"
            "FLUX2_NO_BF16=1 $replay $root/models/tiny --type Q4_0"
            "FLUX2_NO_BF16=1 $replay $build/tiny-Q4_K --type Q4_K")
    done
done
printf '%s\n' "${longest[@]}" "${all_operations[@]}" "${replays[@]}" | xargs -P "$(nproc)" -I{} bash -c '{}'
