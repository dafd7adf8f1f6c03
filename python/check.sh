#!/bin/sh
# Checks the Python package: format, lint, types, tests of the built wheel. It installs pinned packages into
# target/python/venv once, and changes nothing else. With 'ray' it also installs Ray (70 MB) and runs the tests on a cluster.
#
# TANDEM is the binary under test; without it target/release/tandem is built. CI runs this as its step 'python'.
set -eu

[ -z "${TANDEM:-}" ] || TANDEM=$(realpath "$TANDEM")
cd "$(dirname "$0")"
folder=$PWD/../target/python
venv=$folder/venv
requirements=requirements.txt
if [ "${1:-}" = ray ]; then
	venv=$folder/venv-ray
	requirements=requirements-ray.txt
fi
export PYTHONPYCACHEPREFIX="$folder/pycache" PIP_DISABLE_PIP_VERSION_CHECK=1

fail() {
	printf 'python: %s\n' "$*" >&2
	exit 1
}

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	fail "cannot run: seen $(python3 --version 2>&1), allowed Python 3.11 or later; run 'make bootstrap'"
if [ -z "${TANDEM:-}" ]; then
	(cd .. && cargo build --quiet --release -p tandem)
	TANDEM=$PWD/../target/release/tandem
fi
[ -x "$TANDEM" ] || fail "cannot run: TANDEM: seen no program $TANDEM; build it, or leave TANDEM unset"
export TANDEM

# What the installed packages depend on; another means another venv.
state=$(python3 --version; cksum <"$requirements")
if [ "$(cat "$venv/state" 2>/dev/null)" != "$state" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv" || fail "cannot make $venv; run 'make bootstrap', which installs python3-venv"
	"$venv/bin/pip" install -q --require-hashes --only-binary :all: -r "$requirements"
	printf '%s\n' "$state" >"$venv/state"
fi

run() {
	printf '%s\n' "$*"
	"$venv/bin/$@"
}

if [ "${1:-}" != ray ]; then
	run ruff format --check .
	run ruff check .
	run mypy --python-executable "$venv/bin/python"
fi
rm -rf "$folder/dist"
run pip wheel -q --no-deps --no-build-isolation --wheel-dir "$folder/dist" .
run pip install -q --no-deps --no-index --force-reinstall "$folder"/dist/*.whl
if [ "${1:-}" = ray ]; then
	run pytest -m ray
else
	run pytest
fi
