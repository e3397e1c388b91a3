#!/usr/bin/env bash
# Agents of real frameworks (LangGraph, LangChain, OpenAI Agents, Pydantic AI) with scripted models against a
# real `undolog dev`: success, a failing tool, an approval and a rejection with a new process, a kill
# inside a tool, equal calls. Each framework has an environment of its own, with its newest release.
# Arguments name frameworks: scripts/frameworks.sh [langgraph|langchain|openai_agents|pydantic_ai …]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh

need_rust
need_postgres
need_python

packages() {
    case "$1" in
        langgraph | langchain) echo 'langgraph>=1,<2' langgraph-checkpoint-sqlite 'langchain>=1,<2' ;;
        openai_agents) echo openai-agents ;;
        pydantic_ai) echo pydantic-ai-slim ;;
        *) fail "no such framework: $1" ;;
    esac
}

# The environment of a framework, made on first use, and in it the package as it is now.
environment() {
    local name="$1" folder
    [ "$name" != langchain ] || name=langgraph
    folder="target/undolog-framework-$name"
    if [ ! -e "$folder/finished" ]; then
        say "installing $name" >&2
        rm -rf "$folder"
        python3 -m venv "$folder"
        # shellcheck disable=SC2046
        "$folder/bin/pip" install --quiet --disable-pip-version-check hatchling httpx blake3 \
            pytest pytest-asyncio $(packages "$name" | tr -d "'")
        touch "$folder/finished"
    fi
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
        --force-reinstall ./sdk/python
    printf '%s' "$PWD/$folder"
}

build_shipped
export UNDOLOG_BIN="$PWD/target/debug/undolog" UNDOLOG_REQUIRED=1
[ $# -gt 0 ] || set -- langgraph langchain openai_agents pydantic_ai
failed=0
for framework in "$@"; do
    made="$(environment "$framework")"
    say "$framework"
    (cd sdk/python && FRAMEWORK="$framework" "$made/bin/pytest" -q frameworks) || failed=1
done
[ "$failed" = 0 ] && echo "the frameworks' agents passed" || echo "the frameworks' agents FAILED"
exit "$failed"
