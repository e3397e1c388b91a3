#!/usr/bin/env bash
# A thousand requests a second with invented keys for a minute through one proxy, beside the calls of two
# organisations: every valid key is served, the 99th percentile stays within twice that of a quiet minute,
# and memory stays flat. Prints the figures. About three minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
need_postgres
need_cargo_tool cargo-nextest

export UNDOLOG_TEST_FLOOD_SECONDS="${UNDOLOG_TEST_FLOOD_SECONDS:-60}"
export UNDOLOG_TEST_FLOOD_PER_SECOND="${UNDOLOG_TEST_FLOOD_PER_SECOND:-1000}"
export UNDOLOG_TEST_FLOOD_P99_TIMES="${UNDOLOG_TEST_FLOOD_P99_TIMES:-2}"

exec cargo nextest run "${features[@]}" --test e2e --no-capture -E 'test(a_flood_of_invented_keys)'
