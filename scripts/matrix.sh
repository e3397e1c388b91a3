#!/usr/bin/env bash
# Every test on each PostgreSQL that there is: the machine's own versions, and 16 to 18 from npm where
# the machine has npm. Arguments go to nextest: scripts/matrix.sh [arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
need_postgres
need_python
need_cargo_tool cargo-nextest

declare -A servers
for folder in "${UNDOLOG_PG_BIN:-}" /usr/lib/postgresql/*/bin "$(npm_postgres 16)" \
    "$(npm_postgres 17)" "$(npm_postgres 18)"; do
    [ -x "$folder/postgres" ] || continue
    major="$("$folder/postgres" --version | grep -oE '[0-9]+' | head -n 1)"
    [ "$major" -lt 15 ] || servers[$major]="${servers[$major]:-$folder}"
done
if [ "${#servers[@]}" = 0 ]; then
    servers[own]="$(dirname "$(command -v postgres)")"
fi

failed=0
summaries=()
for major in $(printf '%s\n' "${!servers[@]}" | sort); do
    say "PostgreSQL $major: ${servers[$major]}"
    log="$(mktemp)"
    UNDOLOG_PG_BIN="${servers[$major]}" cargo nextest run "${features[@]}" \
        --test-threads $((2 * $(nproc))) "$@" 2>&1 | tee "$log" || failed=1
    summaries+=("PostgreSQL $major:" "$(grep -E 'Summary \[' "$log" | tail -n 1)")
    rm -f "$log"
done
printf '%s\n' "${summaries[@]}"
exit "$failed"
