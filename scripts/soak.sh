#!/usr/bin/env bash
# The long runs at full size: what the tests of every change do with less. About a quarter of an hour.
#
#   50 restarts of every process while 500 approvals are pending; a whole minute in which an endpoint
#   answers 429; 10,000 effects of one session undone; 1,000 callers that wait with one call; 1,000
#   callers that go away; a tool of a Python agent that blocks for more than two minutes of real time;
#   eight hours of a database's clock that jumps by ten minutes in either direction under load.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
need_postgres
need_python
need_cargo_tool cargo-nextest

export UNDOLOG_TEST_RESTARTS="${UNDOLOG_TEST_RESTARTS:-50}"
export UNDOLOG_TEST_REQUESTS="${UNDOLOG_TEST_REQUESTS:-500}"
export UNDOLOG_TEST_WAITERS="${UNDOLOG_TEST_WAITERS:-1000}"
export UNDOLOG_TEST_CANCELLED_CALLS="${UNDOLOG_TEST_CANCELLED_CALLS:-1000}"
export UNDOLOG_TEST_EFFECTS="${UNDOLOG_TEST_EFFECTS:-10000}"
export UNDOLOG_TEST_BROWN_OUT_SECONDS="${UNDOLOG_TEST_BROWN_OUT_SECONDS:-60}"
export UNDOLOG_TEST_BLOCK_SECONDS="${UNDOLOG_TEST_BLOCK_SECONDS:-130}"
export UNDOLOG_TEST_CLOCK_MINUTES="${UNDOLOG_TEST_CLOCK_MINUTES:-480}"
export UNDOLOG_TEST_CLOCK_AGENTS="${UNDOLOG_TEST_CLOCK_AGENTS:-8}"
# Another eight hours each time; the test says which they were.
export UNDOLOG_TEST_CLOCK_SEED="${UNDOLOG_TEST_CLOCK_SEED:-$(date +%s)}"

exec cargo nextest run "${features[@]}" --test e2e --no-capture \
    -E 'test(restarts_lose_no_request) | test(a_brown_out_dead_letters_nothing) | test(a_long_session_is_undone)
        | test(a_crowd_) | test(cancelled_calls_) | test(a_tool_that_blocks_for_minutes)
        | test(hours_of_a_clock_that_jumps)'
