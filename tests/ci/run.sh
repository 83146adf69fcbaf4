#!/usr/bin/env bash
# Tests .ci/once and .ci/not_run in a repository made here. Usage: tests/ci/run.sh
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FLUX2_CI_CACHE=$work/cache FLUX2_CI_CPUINFO=$work/cpuinfo GIT_CONFIG_GLOBAL=$work/gitconfig
unset FLUX2_CI_ALL FLUX2_CI_SKIPPED
printf 'model name\t: Old CPU\nflags\t\t: sse2\n' > "$FLUX2_CI_CPUINFO"
git config --global user.name test
git config --global user.email test@example.org
git config --global init.defaultBranch main

new_clone() { # FOLDER
    mkdir -p "$1/.ci" "$1/code" "$1/other" "$1/shared"
    cp "$source/.ci/once" "$1/.ci/"
    printf '# A comment.\nCODE  .ci shared\nCODE  code/a.txt\nstep  CODE code/b.txt\nbroken  code/none.txt\n' > "$1/.ci/steps"
    for file in code/a.txt code/b.txt code/c.txt other/d.txt shared/e.txt; do
        echo "$file" > "$1/$file"
    done
    cd "$1"
    git init -q
    git add -A
    git commit -qm "first"
}
change() { # FILE: and commits it
    echo more >> "$1"
    git commit -qam "change $1"
}
n=0
expect() { # runs|skips WHAT [COMMAND...]
    local expected=$1 what=$2 found=skips said
    shift 2
    [ $# -gt 0 ] || set -- touch "$work/ran"
    rm -f "$work/ran"
    said=$(.ci/once step "$@") || true
    if [ -e "$work/ran" ]; then found=runs; fi
    if [ "$found" != "$expected" ] || { [ "$found" = skips ] && [[ $said != "step: skipped, as it passed on this machine with the same inputs ("* ]]; }; then
        echo "tests/ci: $what: $found instead of $expected; .ci/once said: $said" >&2
        exit 1
    fi
    n=$((n + 1))
}

new_clone "$work/clone"
expect runs "the first time"
expect skips "the second time"
change other/d.txt
expect skips "a file that it does not depend on"
for file in code/a.txt code/b.txt shared/e.txt .ci/steps; do
    change "$file"
    expect runs "changed: $file"
    expect skips "nothing changed after $file"
done
FLUX2_CI_ALL=1 expect runs "everything asked for"
expect runs "another command" touch "$work/ran" "$work/ran2"
CXXFLAGS=-O0 expect runs "other options of compilers"

echo more >> code/a.txt
expect runs "a change that is not committed"
expect runs "the same, as it is no pass of a commit"
git checkout -q code/a.txt
expect skips "the change taken back"
echo new > shared/new.txt
expect runs "a file that git does not know"
rm shared/new.txt

cp "$FLUX2_CI_CPUINFO" "$work/old"
printf 'model name\t: New CPU\nflags\t\t: sse2 amx_int8\n' > "$FLUX2_CI_CPUINFO"
expect runs "another CPU"
cp "$work/old" "$FLUX2_CI_CPUINFO"
expect skips "the first CPU again"

change code/b.txt
printf '#!/bin/sh\ntouch "%s"\nexit 3\n' "$work/ran" > "$work/fail"
chmod +x "$work/fail"
expect runs "a step that fails" "$work/fail"
expect runs "a step that failed" "$work/fail"
status=0
.ci/once step "$work/fail" || status=$?
[ $status -eq 3 ] || { echo "tests/ci: a failed step exits with $status, expected 3" >&2; exit 1; }

expect runs "before passes grow old"
find "$FLUX2_CI_CACHE/passed" -type f -exec touch -d '15 days ago' {} +
expect runs "passes of 15 days ago"

# Another clone of the same files, in another folder, whose path the command has.
git clone -q "$work/clone" "$work/elsewhere/second"
expect runs "a path below the clone" touch "$work/ran" "$PWD/made"
rm made
cd "$work/elsewhere/second"
expect skips "another clone with the same files" touch "$work/ran" "$PWD/made"

for wrong in nosuch broken; do
    status=0
    .ci/once $wrong touch "$work/ran" 2> "$work/said" || status=$?
    [ $status -eq 2 ] || { echo "tests/ci: step $wrong exits with $status, expected 2" >&2; exit 1; }
done

# Every path of the table exists, and every step that .ci/run may skip is in it.
while read -r name paths; do
    for path in $paths; do
        [[ $path =~ ^[A-Z]+$ ]] || [ -e "$source/$path" ] || { echo "tests/ci: .ci/steps: $name names $path, which is not there" >&2; exit 1; }
    done
done < <(grep -v '^#' "$source/.ci/steps")
for step in $(grep -oE '\.ci/once [a-z]+' "$source/.ci/run" | cut -d ' ' -f 2); do
    grep -q "^$step " "$source/.ci/steps" || { echo "tests/ci: .ci/steps has no line $step" >&2; exit 1; }
done

# A case that ran with something hidden is not listed, one that ran nowhere is.
printf '%s\n' 'not run here: a: sums: needs AMX' 'not run here: products: needs AVX-VNNI' > "$work/one.log"
printf '%s\n' 'noise' 'ran here: products' 'not run here: a: sums: needs AMX' > "$work/two.log"
"$source/.ci/not_run" "$work/one.log" "$work/two.log" > "$work/list"
[ "$(grep -c '^  a: sums: needs AMX$' "$work/list")" = 1 ] && ! grep -q products "$work/list" || {
    cat "$work/list"
    echo "tests/ci: .ci/not_run lists other cases than 'a: sums'" >&2
    exit 1
}
echo "$n runs of .ci/once, the table of steps and the list of what did not run: as expected"
