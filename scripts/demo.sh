#!/usr/bin/env bash
# Builds the program and plays the demonstration. Arguments go to `undolog demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
need_rust
need_postgres
say "building undolog: a few minutes at the first time"
# As it is shipped: without the switches of test builds.
exec cargo run --locked --package undolog-cli -- demo "$@"
