#!/usr/bin/env bash
# Unpacks what flux2 links against, built for another architecture, out of Debian's packages. The machine's own package
# lists stay as they are. Usage: tests/cross/sysroot.sh amd64|arm64 FOLDER
set -euo pipefail
architecture=$1
folder=$2
[ -e "$folder/complete" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
cd "$folder"
apt=(apt-get -qq -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o APT::Sandbox::User=
    -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache" -o Dir::State::status=/dev/null)
"${apt[@]}" update
"${apt[@]}" download libutf8proc-dev libssl-dev nlohmann-json3-dev libcxxopts-dev libstb-dev libeigen3-dev libwebp-dev
# Apart from libwebp since its version 1.3; Debian 12 has no such package.
"${apt[@]}" download libsharpyuv-dev 2> /dev/null || true
for package in *.deb; do
    dpkg -x "$package" .
done
cp -r usr/include/*-linux-gnu/. usr/include  # so that one include folder suffices
# Linked statically: then nothing of this folder is needed at run time.
find usr/lib -name '*.so' -delete
rm -rf apt ./*.deb
touch complete
