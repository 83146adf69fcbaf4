#!/usr/bin/env bash
# Converts checkpoints and prints time, speed and peak memory without the mapped files (RssAnon).
# Usage: scripts/bench_convert.sh [FILE...]     default: the test model, which shows only that it works
# TYPES="Q8_0 Q4_K_M" chooses the types, OUT the folder for the results (removed afterwards).
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- build/fixtures/klein/flux2.safetensors
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
printf '%-26s %-7s %9s %9s %11s %14s\n' file type seconds MB/s "output MB" "peak anon MB"
for file in "$@"; do
    for type in ${TYPES:-Q8_0 Q4_K_M}; do
        start=$(date +%s.%N)
        build/bin/flux2-convert "$file" -o "$out/result.gguf" --type "$type" > /dev/null 2>&1 &
        pid=$!
        peak=0
        while kill -0 $pid 2> /dev/null; do
            anon=$(awk '/RssAnon/ {print $2}' /proc/$pid/status 2> /dev/null || true)
            if [ "${anon:-0}" -gt "$peak" ]; then peak=$anon; fi
            sleep 0.02
        done
        wait $pid
        end=$(date +%s.%N)
        bytes=$(stat -Lc %s "$file")
        awk -v f="$(basename "$file")" -v t="$type" -v s="$start" -v e="$end" -v b="$bytes" -v p="$peak" \
            -v o="$(stat -c %s "$out/result.gguf")" \
            'BEGIN {printf "%-26s %-7s %9.2f %9.0f %11.0f %14.1f\n", f, t, e - s, b / 1e6 / (e - s), o / 1e6, p / 1000}'
        rm -f "$out/result.gguf"
    done
done
[ -n "${OUT:-}" ] || rmdir "$out"
