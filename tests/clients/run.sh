#!/usr/bin/env bash
# Runs real clients against flux2-server with the bundled model: the openai npm package, the curl lines of docs/server.md, and
# the requests of Open WebUI, LibreChat and SillyTavern. Usage: tests/clients/run.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
work=$build/clients
mkdir -p "$work"
cp "$here"/*.mjs "$here/package.json" "$work"
cd "$work"
npm install --ignore-scripts --no-audit --no-fund --no-save --no-package-lock > npm.log 2>&1 || { cat npm.log; exit 1; }

: > server.log  # it may be read before the server has opened it
"$build/bin/flux2-server" --port 0 --api-key test-key --no-cache --metrics --queue-size 4 \
    --lora-dir "$here/../../models/tiny" 2>> server.log &
server=$!
trap 'kill $server 2> /dev/null; wait $server 2> /dev/null || true' EXIT
for _ in $(seq 100); do
    address=$(sed -n 's/.*event=ready address=\([^ ]*\).*/\1/p' server.log)
    [ -n "$address" ] && break
    sleep 0.1
done
[ -n "$address" ] || { cat server.log; exit 1; }
export FLUX2_URL=$address FLUX2_KEY=test-key

node openai.mjs
node other_clients.mjs
"$here/docs_lines.sh" "$here/../../docs/server.md"
