#!/usr/bin/env bash
# Runs the curl lines of a page of the documentation against the server at FLUX2_URL, in blocks that begin with
# ```sh curl. Fails when one of them fails. Usage: docs_lines.sh PAGE
set -euo pipefail
page=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
awk '/^```/ { in_block = 0 } in_block { print } /^```sh curl/ { in_block = 1 }' "$page" > "$folder/lines.sh"
grep -q curl "$folder/lines.sh" || { echo "$page has no block of curl lines" >&2; exit 1; }
cd "$folder"
URL=$FLUX2_URL KEY=$FLUX2_KEY bash -euo pipefail lines.sh > out.txt 2> err.txt || { cat err.txt out.txt; exit 1; }
echo "docs: $(grep -c '^curl' lines.sh) curl lines of $(basename "$page")"
