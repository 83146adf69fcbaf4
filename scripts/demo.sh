#!/usr/bin/env bash
# Draws with the bundled tiny model: a picture from words, an edit of it, one by the base model with guidance, one with a LoRA.
# Called by `make demo`.
set -eu
cd "$(dirname "$0")/.."
mkdir -p demo
draw() { # draw FILE PROMPT [OPTIONS]
    local file=$1 prompt=$2
    shift 2
    echo "\"$prompt\" $*"
    build/bin/flux2 -p "$prompt" -o "demo/$file" -s 7 --no-cache "$@" 2> build/demo.log || { cat build/demo.log; exit 1; }
}
draw house.png "a small red house on the left and a tree in the middle, by day, on the grass"
draw night.png "make it night" -r demo/house.png
draw boat.png "a big yellow boat in the middle, at sunset, on the sea" --variant base --steps 8
draw blueprint.png "a big yellow boat in the middle, at sunset, on the sea" --lora models/tiny/blueprint-lora.safetensors
