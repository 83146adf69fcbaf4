#!/usr/bin/env bash
# Two replicas behind HAProxy (Debian package haproxy) with the configuration of docs/server.md; one of them is killed under
# load. Only the requests that it was working on may fail, and with one retry none. Usage: tests/clients/replicas.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
PATH=$PATH:/usr/sbin
work=$build/replicas
rm -rf "$work"
mkdir -p "$work"
cp "$here/replicas.mjs" "$work"
cd "$work"
awk '/^```/ { in_block = 0 } /^# haproxy.cfg/ { in_block = 1 } in_block { print }' "$here/../../docs/server.md" > haproxy.cfg

servers=()
trap 'kill "${servers[@]}" 2> /dev/null; wait 2> /dev/null || true' EXIT
for port in 8081 8082; do
    "$build/bin/flux2-server" --port $port --no-cache --output-dir results -q 2> "$port.log" &
    servers+=($!)
done
haproxy -f haproxy.cfg > haproxy.log 2>&1 &
servers+=($!)
for _ in $(seq 100); do
    curl -sf localhost:8081/health > /dev/null && curl -sf localhost:8082/health > /dev/null &&
        curl -sf localhost:8000/health > /dev/null && break
    sleep 0.1
done
node replicas.mjs http://localhost:8000 "${servers[0]}"
