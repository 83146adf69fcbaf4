#!/usr/bin/env bash
# Converts the small test model with --verify and shows the result. Called by `make demo`.
set -eu
cd "$(dirname "$0")/.."
out=build/demo
rm -rf "$out"
build/bin/flux2-convert tests/fixtures/klein/flux2.safetensors tests/fixtures/klein/vae.safetensors -o "$out" --verify
ls -l "$out"
