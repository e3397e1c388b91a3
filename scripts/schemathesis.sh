#!/usr/bin/env bash
# Checks a development server against the document that its HTTP face serves, with generated requests,
# good and bad ones: scripts/schemathesis.sh [examples per route]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
need_postgres
need_python
examples="${1:-250}"
seed="${SCHEMATHESIS_SEED:-1}"

environment=target/undolog-schemathesis
if [ ! -e "$environment/finished" ]; then
    say "installing schemathesis"
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check \
        -r tests/python/schemathesis.txt
    touch "$environment/finished"
fi

build_shipped
data="$(mktemp -d)"
# The private Postgres runs as another user when we are root.
chmod 755 "$data"
target/debug/undolog dev --json --port 0 --http-port 0 --proxy-port 0 --data-dir "$data/pg" \
    >"$data/greeting" 2>"$data/log" &
server=$!
stop() {
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    rm -rf "$data"
}
trap stop EXIT
for _ in $(seq 600); do
    [ -s "$data/greeting" ] && break
    kill -0 "$server" || { cat "$data/log" >&2; exit 1; }
    sleep 0.1
done
url="$(python3 -c 'import json, sys; print(json.load(sys.stdin)["proxy_url"])' <"$data/greeting")"

# Streams do not end by themselves, and probes take no input. A request that fits the document can
# still be refused by the journal, so acceptance is not checked, and neither is authentication: a
# development server asks for no key.
checks=not_a_server_error,status_code_conformance,content_type_conformance
checks+=,response_schema_conformance,unsupported_method,allow_header_conformance
say "schemathesis against $url"
"$environment/bin/schemathesis" run "$url/openapi.json" \
    --exclude-path /events \
    --phases examples,coverage,fuzzing \
    --checks "$checks" \
    --max-examples "$examples" --seed "$seed" --workers 1 --request-timeout 40 \
    --suppress-health-check all --continue-on-failure
