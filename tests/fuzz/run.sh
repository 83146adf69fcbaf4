#!/bin/sh
# Fuzzes each parser for SECONDS, starting from a copy of its corpus. Exits non-zero on a finding,
# whose input is left in build-fuzz/findings. Build first:
#   cmake --preset fuzz && cmake --build --preset fuzz
# usage: tests/fuzz/run.sh SECONDS [FOLDER WITH THE TARGETS]
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 SECONDS [FOLDER WITH THE TARGETS]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${2:-$root/build-fuzz/bin}
findings=$(dirname "$bin")/findings
mkdir -p "$findings"
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT

status=0
for format in safetensors gguf image; do
    if [ ! -x "$bin/fuzz_$format" ]; then
        echo "$bin/fuzz_$format is not built; run make fuzz" >&2
        exit 2
    fi
    cp -r "$here/corpus/$format" "$corpus/$format"
    echo "fuzz_$format: $1 seconds"
    if ! "$bin/fuzz_$format" -max_total_time="$1" -max_len=65536 -rss_limit_mb=2048 -timeout=10 \
        -print_final_stats=1 -artifact_prefix="$findings/$format-" "$corpus/$format"; then
        echo "fuzz_$format: a finding, see $findings" >&2
        status=1
    fi
done
exit $status
