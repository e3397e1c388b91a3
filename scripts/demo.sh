#!/usr/bin/env bash
# Builds the program and plays the demonstration. Arguments go to `undolog demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
need_rust
need_postgres
exec cargo run --locked --quiet -p undolog-cli -- demo "$@"
