#!/bin/sh
# Fuzzes each parser for SECONDS, starting from a copy of its corpus. Exits non-zero on a finding,
# whose input is left in build-asan/findings. `make fuzz` builds and runs all.
# usage: tests/fuzz/run.sh SECONDS [FOLDER WITH THE TARGETS]
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 SECONDS [FOLDER WITH THE TARGETS]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${2:-$root/build-asan/bin}
findings=$(dirname "$bin")/findings
mkdir -p "$findings"
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT

fuzz() { # FORMAT SECONDS
    cp -r "$here/corpus/$1" "$corpus/$1"
    echo "fuzz_$1: $2 seconds"
    if ! "$bin/fuzz_$1" -max_total_time="$2" -max_len=65536 -rss_limit_mb=2048 -timeout=10 \
        -print_final_stats=1 -artifact_prefix="$findings/$1-" "$corpus/$1" > "$corpus/$1.log" 2>&1; then
        cat "$corpus/$1.log"
        echo "fuzz_$1: a finding, see $findings" >&2
        return 1
    fi
    grep -E "^Done|number_of_executed_units" "$corpus/$1.log"
}

formats="safetensors gguf image adapter http"
for format in $formats; do
    if [ ! -x "$bin/fuzz_$format" ]; then
        echo "$bin/fuzz_$format is not built; run make fuzz" >&2
        exit 2
    fi
done
jobs=""
for format in $formats; do
    fuzz "$format" "$1" &
    jobs="$jobs $!"
done
status=0
for job in $jobs; do
    wait "$job" || status=1
done
exit $status
