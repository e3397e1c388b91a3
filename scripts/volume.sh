#!/usr/bin/env bash
# Counts the rows that each statement reads with 100,000 live and a million ended sessions, or as many
# as UNDOLOG_VOLUME_LIVE and UNDOLOG_VOLUME_ENDED say. The tests do the same with a twentieth of it.
# Ten times the size: UNDOLOG_VOLUME_LIVE=1000000 UNDOLOG_VOLUME_ENDED=10000000 scripts/volume.sh
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
need_postgres
need_cargo_tool cargo-nextest
export UNDOLOG_VOLUME_LIVE="${UNDOLOG_VOLUME_LIVE:-100000}"
export UNDOLOG_VOLUME_ENDED="${UNDOLOG_VOLUME_ENDED:-1000000}"
say "volume: $UNDOLOG_VOLUME_LIVE live and $UNDOLOG_VOLUME_ENDED ended sessions"
exec cargo nextest run --workspace --all-features --locked --test steps --no-capture \
    -E 'test(no_statement_reads_more_than_a_bounded_number_of_rows)'
