#!/usr/bin/env bash
# The page of flux2-server in Chromium, with the bundled model. Usage: tests/browser/run.sh BUILD_FOLDER [WORDS]
# With WORDS only the cases whose names contain them run. FLUX2_CHROMIUM: another browser than /usr/bin/chromium.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
"$here/../../scripts/setup.sh" browser
work=$build/browser
mkdir -p "$work"
cp "$here"/*.mjs "$here/package.json" "$here/../../examples/server/web/texts.js" "$here/../clients/png.mjs" "$work"
cd "$work"
npm install --ignore-scripts --no-audit --no-fund --no-save --no-package-lock > npm.log 2>&1 || { cat npm.log; exit 1; }
export FLUX2_SERVER=$build/bin/flux2-server FLUX2_LORA_DIR=$here/../../models/tiny
exec node main.mjs "${2:-}"
