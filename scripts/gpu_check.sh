#!/usr/bin/env bash
# Compares an NVIDIA GPU with recorded results in every way in which our kernels can be chosen: as the card is, as one without Hopper's
# matrix units (FLUX2_NO_HOPPER), and with a build whose kernels for Hopper are for another architecture than the card's. Prints a line
# for each run; ends with 1 when one failed.
# Usage: scripts/gpu_check.sh BUILD [OTHER_BUILD]
#   BUILD        build folder of `make cuda`
#   OTHER_BUILD  one with -DFLUX2_HOPPER_ARCHITECTURE=100a-real
# Settings: DEVICE=CUDA0, LOGS=folder for what the runs print, RUNS="networks pictures operations training bench" for some of these
# (operations take minutes, the others seconds), and for times of full-size networks CHECKPOINT=klein-4b.safetensors, VAE=vae.safetensors.
set -uo pipefail
build=$(cd "$1" && pwd)
other=${2:+$(cd "$2" && pwd)}
cd "$(dirname "$0")/.."
device=${DEVICE:-CUDA0}
logs=${LOGS:-$(mktemp -d)}
tiny=$logs/tiny
mkdir -p "$tiny"
cp -r "$build"/fixtures/tiny/. tests/fixtures/tiny/. "$tiny"
cp models/tiny/blueprint-lora.safetensors "$tiny/blueprint.safetensors"
failed=0

run() { # NAME PROGRAM ARGUMENTS...
    local name=$1 log=$logs/${1// /_}.log begun=$SECONDS status=0
    shift
    "$@" > "$log" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        printf '%-36s passed  %s (%s s)\n' "$name" "$(tail -n 1 "$log")" $((SECONDS - begun))
    else
        printf '%-36s FAILED with exit code %s: %s\n' "$name" "$status" "$(tail -n 1 "$log")"
        grep -m 5 FAIL "$log"
        failed=1
    fi
}

compare() { # NAME PROGRAM
    local name=$1 flux2=$2 kind type
    for kind in ${RUNS:-networks pictures operations training bench}; do
        for type in F32 BF16 Q8_0; do
            case $kind in
                networks) run "$name, networks $type" "$flux2" selftest --golden "$build/share/flux2/selftest" --device "$device" --type $type ;;
                pictures) run "$name, pictures $type" "$flux2" selftest --replay "$tiny"/golden-{t2i,edit,base}.safetensors -m models/tiny --device "$device" --type $type ;;
            esac
        done
        case $kind in
            networks | pictures) ;;
            operations) run "$name, operations" "$flux2" selftest --ops --device "$device" ;;
            training) run "$name, training" "$flux2" selftest --training "$tiny/training/golden-training-distilled.safetensors" -m models/tiny --device "$device" ;;
            bench) run "$name, bench" "$flux2" bench -m models/tiny --device "$device" -W 256 -H 256 ;;
            *) printf 'RUNS has no %s\n' "$kind"; failed=1 ;;
        esac
    done
}

measure() { # NAME PROGRAM
    local side
    [ -n "${CHECKPOINT:-}" ] || return 0
    for side in 512 1024; do
        run "$1, step $side" "$2" bench --diffusion-model "$CHECKPOINT" --device "$device" -W $side -H $side --repeat 9
    done
    [ -n "${VAE:-}" ] || return 0
    run "$1, decode 1024" "$2" bench --vae "$VAE" --stage decode --device "$device" --repeat 9
}

for task in compare measure; do
    $task "as it is" "$build/bin/flux2"
    FLUX2_NO_HOPPER=1 $task "without Hopper" "$build/bin/flux2"
    [ -z "$other" ] || $task "other architecture" "$other/bin/flux2"
done
exit $failed
