#!/usr/bin/env bash
# Compiles our CUDA kernels for the architectures named (75 90 ...), or for all we support; needs nvcc but no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc > /dev/null || { echo "nvcc is not here; install the CUDA toolkit to check the kernels" >&2; exit 1; }
[ $# -gt 0 ] || set -- 75 80 86 89 90 120

ccache=$(command -v ccache || true)
compile() {  # FILE ARCHITECTURE
    echo "sm_$2 $1"
    $ccache nvcc -std=c++17 -O3 -I flux2 -gencode "arch=compute_$2,code=sm_$2" --Werror all-warnings -c "$1" -o "$objects/$(basename "$1").$2.o"
}
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
for architecture in "$@"; do
    for file in flux2/compute/cuda/*.cu; do
        case "$file" in
            *_hopper.cu) [ "$architecture" != 90 ] || compile "$file" 90a ;;  # only this architecture has their instructions
            *) compile "$file" "$architecture" ;;
        esac
    done
done
