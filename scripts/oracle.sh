#!/usr/bin/env bash
# Many random sequences against the oracle: scripts/oracle.sh [how many] [seed]. Each number of each seed
# is one sequence; one that fails is shrunk and printed as the lines that
# tests/tests/oracle/regressions.txt keeps.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
need_postgres

export UNDOLOG_ORACLE_RUNS="${1:-10000}"
export UNDOLOG_ORACLE_SEED="${2:-$(date +%s)}"
echo "$UNDOLOG_ORACLE_RUNS sequences of seed $UNDOLOG_ORACLE_SEED"
exec cargo test "${features[@]}" -p undolog-tests --test oracle -- --nocapture random_sequences
