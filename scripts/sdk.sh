#!/usr/bin/env bash
# Checks the Python SDK as it is installed: types, style, and its tests against the program that was
# built here, with the machine's Python; and where there is one, with the oldest that is supported, what
# can differ between them: everything but the tests of the service's own promises.
# Arguments go to pytest, in place of that choice: scripts/sdk.sh [pytest's arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
need_postgres
need_python
oldest=3.10

# The first Python that runs and is of this version: on the PATH, else of a version manager.
python_of() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$candidate" -c "import ensurepip, sys, venv
sys.exit(sys.version_info[:2] != tuple(map(int, '$1'.split('.'))))" 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
}

# An environment with what the tests need, and in it the package as it would be published.
install() {
    local python="$1" version stamp
    version="$("$python" -c 'import platform; print(platform.python_version())')"
    stamp="$(sha256sum sdk/python/pyproject.toml | cut -c 1-12)"
    environment="target/undolog-sdk-$version-$stamp"
    if [ ! -e "$environment/finished" ]; then
        say "installing what the SDK's tests need, Python $version"
        rm -rf "$environment"
        "$python" -m venv "$environment"
        "$environment/bin/pip" install --quiet --disable-pip-version-check hatchling \
            'sdk/python[dev]'
        touch "$environment/finished"
    fi
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation \
        --no-deps --force-reinstall ./sdk/python
}

# The last line of a log like this.
last() { grep -E "$1" "$2" | tail -n 1 || printf 'there is no closing line'; }

summaries=()
failed=0
# Types and style are checked for the oldest Python whatever runs the checks, so one run of them is
# enough; what a call costs is measured once too. Such work is left out with `tests`.
check() {
    local what="$1" python="$2" title log environment
    shift 2
    title="SDK, $("$python" --version)"
    install "$python"
    environment="$PWD/$environment"
    say "$title"
    log="$(mktemp)"
    (
        set +e
        status=0
        "$environment/bin/python" tests/vectors/generate.py --check || status=1
        cd sdk/python
        if [ "$what" = all ]; then
            "$environment/bin/mypy" || status=1
            "$environment/bin/ruff" check . || status=1
            "$environment/bin/ruff" format --check . || status=1
        fi
        UNDOLOG_REQUIRED=1 "$environment/bin/pytest" -q "$@" || status=1
        # It says what a call costs; a busy machine is no failure.
        if [ "$what" = all ]; then "$environment/bin/python" benchmarks/overhead.py 2000 || true; fi
        exit "$status"
    ) 2>&1 | tee "$log" || failed=1
    summaries+=("$title: $(last '(passed|failed|error).* in [0-9.]+s' "$log")")
    [ "$what" = tests ] || summaries+=("SDK, $(last '^the SDK.s own share' "$log")")
    rm -f "$log"
}

build_shipped
cargo build "${features[@]}" --example sign
export UNDOLOG_BIN="$PWD/target/debug/undolog"
python="$(command -v python3)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
    || fail "Python $oldest or newer is needed"
check all "$python" "$@"
[ $# -gt 0 ] || set -- tests --ignore tests/test_integration.py \
    --ignore tests/test_real_promises.py --ignore tests/test_proxy_restart.py \
    --ignore tests/test_quickstart.py --ignore tests/test_compensations_page.py
other="$(python_of "$oldest")"
if "$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] == '$oldest')"; then
    if [ -n "$other" ]; then
        check tests "$other" "$@"
    else
        summaries+=("SDK, Python $oldest: left out, this machine has none")
    fi
fi
printf '%s\n' "${summaries[@]}"
[ "$failed" = 0 ] && echo "the SDK's checks passed" || echo "the SDK's checks FAILED"
exit "$failed"
