#!/usr/bin/env bash
# A program that is shipped has no switches of test builds: no crash points, and no guards that the
# environment takes out. This fails when what `cargo build` makes of the shipped crates would have the
# feature `testkit`, and when a program that is given has one of the switches' names in it:
#   scripts/release-check.sh [PROGRAM...]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
need_rust

has_testkit() {
    local tree
    tree="$(cargo tree --locked --edges features,no-dev "$@")" || fail "cargo tree $*"
    grep -qF 'feature "testkit"' <<<"$tree"
}
has_testkit --workspace || fail "no crate has the feature testkit: this looks for the wrong name"
if has_testkit; then fail "cargo build: the shipped crates get the feature testkit"; fi
if has_testkit --package undolog-cli; then fail "undolog-cli alone has the feature testkit"; fi

# Every variable that code of the feature reads, the clock that the test kit moves, the kit's sizes.
mapfile -t switches < <(
    grep -rl 'feature = "testkit"' --include=*.rs -- */src | xargs grep -oh '"UNDOLOG_[A-Z_]*"' \
        | tr -d '"' | sort -u
)
[ "${#switches[@]}" -ge 2 ] || fail "the switches of test builds were not found in the code"
switches+=(UNDOLOG_TEST_ CLOCK_OFFSET_FILE TEST_DIES_WITH_PARENT)

failed=0
for program in "$@"; do
    # A file that is not the program would pass.
    grep -aqF UNDOLOG_ENGINE_URL "$program" || fail "$program: this is not undolog"
    for switch in "${switches[@]}"; do
        if grep -aqF "$switch" "$program"; then
            printf '%s: contains %s: it is a test build\n' "$program" "$switch" >&2
            failed=1
        fi
    done
done
[ "$failed" = 0 ] || exit 1
printf 'no switches of test builds (%s)\n' "${switches[*]}"
