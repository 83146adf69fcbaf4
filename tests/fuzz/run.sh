#!/bin/sh
# Fuzzes each parser for SECONDS, starting from its corpus and from what earlier runs on this machine have added to it, in
# ~/.cache/flux2-ci/corpus. Exits non-zero on a finding, whose input is left in build-asan/findings. `make fuzz` builds and runs all.
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
kept=${FLUX2_CI_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/flux2-ci}/corpus
most=5000  # inputs that are kept of a format: as many are read in a second
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fuzz() { # FORMAT SECONDS
    mkdir -p "$kept/$1"
    n_kept=$(ls "$kept/$1" | wc -l)
    echo "fuzz_$1: $2 seconds, from $(ls "$here/corpus/$1" | wc -l) inputs and $n_kept of earlier runs"
    limits="-max_len=65536 -rss_limit_mb=2048 -timeout=10"
    # shellcheck disable=SC2086  # a list of options
    if ! "$bin/fuzz_$1" -max_total_time="$2" $limits -print_final_stats=1 -artifact_prefix="$findings/$1-" \
        "$kept/$1" "$here/corpus/$1" > "$work/$1.log" 2>&1; then
        cat "$work/$1.log"
        echo "fuzz_$1: a finding, see $findings" >&2
        return 1
    fi
    grep -E "^Done|number_of_executed_units" "$work/$1.log"
    if [ "$n_kept" -gt "$most" ]; then
        # The fewest inputs that reach as much code, in the folder's place.
        mkdir "$work/$1"
        # shellcheck disable=SC2086
        "$bin/fuzz_$1" -merge=1 $limits "$work/$1" "$kept/$1" > "$work/$1.log" 2>&1 || { cat "$work/$1.log"; return 1; }
        rm -rf "${kept:?}/$1"
        mv "$work/$1" "$kept/$1"
    fi
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
