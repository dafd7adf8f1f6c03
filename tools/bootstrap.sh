#!/bin/sh
# Installs what building, testing and the lab need on Debian 12 or later; what is there already is left alone.
# It changes nothing but packages, may be run again at any time, and prints one line a step. With 'browser' it also installs Chromium
# without a window, for the tests of the report's page, and libvirt's schema; tests are skipped where they are missing.
set -eu

RUST_MIN=85 # of 1.85, the oldest compiler that knows edition 2024
CLANG_MIN=18
PATH=$PATH:${HOME:-/}/.cargo/bin:/usr/sbin:/sbin
export PATH
log=

say() { printf 'bootstrap: %s\n' "$*"; }
fail() {
	printf 'bootstrap: %s\n' "$*" >&2
	exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Minor version of a tool of Rust, 0 when it is missing: "cargo 1.85.0" gives 85.
rust_minor() {
	have "$1" || { echo 0; return; }
	"$1" --version 2>/dev/null | sed -n 's/^[a-z]* 1\.\([0-9]*\)\..*/\1/p' | grep . || echo 0
}

rust_is_new_enough() { [ "$(rust_minor cargo)" -ge $RUST_MIN ] && [ "$(rust_minor rustc)" -ge $RUST_MIN ]; }

# The newest clang from CLANG_MIN on in the search path, as a command; nothing when there is none.
clang_found() {
	for n in 23 22 21 20 19 18; do
		if [ $n -ge $CLANG_MIN ] && have clang-$n; then echo clang-$n && return; fi
	done
	if have clang; then
		n=$(clang -dumpversion | cut -d. -f1)
		if [ "$n" -ge $CLANG_MIN ]; then echo clang; fi
	fi
}

in_archive() { [ -n "$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \(.*\)/\1/p' | grep -v '(none)')" ]; }

# Newest of the clang packages that the archive has.
clang_package() {
	for n in 19 20 21 22 18; do
		if in_archive clang-$n; then echo clang-$n && return; fi
	done
	echo clang
}

# Packages for cargo and rustc: those whose version is high enough, "rustc cargo" or Debian 12's "-web" ones.
rust_packages() {
	for suffix in '' -web; do
		v=$(apt-cache policy cargo$suffix 2>/dev/null | sed -n 's/^  Candidate: \(.*\)/\1/p')
		minor=$(echo "$v" | sed -n 's/^\([0-9]*:\)\{0,1\}1\.\([0-9]*\)\..*/\2/p')
		if [ "${minor:-0}" -ge $RUST_MIN ]; then echo "cargo$suffix rustc$suffix" && return; fi
	done
}

# A static libelf that was built with zstd needs libzstd.a beside it.
libelf_needs_zstd() {
	for a in /usr/lib/*/libelf.a /usr/lib64/libelf.a; do
		if [ -f "$a" ] && grep -q ZSTD_ "$a" 2>/dev/null; then return 0; fi
	done
	return 1
}

header() { [ -f "/usr/include/$1" ] || ls /usr/include/*/"$1" >/dev/null 2>&1; }

# What is missing, as packages; asks the machine, not the archive.
missing_packages() {
	have gcc || echo gcc
	have c++ || echo g++
	header stdlib.h || echo libc6-dev
	have make || echo make
	have git || echo git
	have pkg-config || echo pkg-config
	header libelf.h || echo libelf-dev
	header zlib.h || echo zlib1g-dev
	if libelf_needs_zstd && ! header zstd.h; then echo libzstd-dev; fi
	have mke2fs || echo e2fsprogs
	have xz || echo xz-utils
	have zstd || echo zstd
	have setpriv || echo util-linux
	have busybox || echo busybox-static
	[ -d /usr/share/keyrings ] && ls /usr/share/keyrings/debian-archive-*.gpg >/dev/null 2>&1 || echo debian-archive-keyring
	[ -f /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates
	have python3 || echo python3
	python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

install_packages() {
	say "installing $*"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >"$log" 2>&1 && return
	tail -n 15 "$log" >&2
	fail "packages: cannot install $*: apt-get said the above; correct it and run again"
}

# A browser that tests can run (crates/report/tests/browser.rs), or leave to them to skip.
browser_found() {
	[ -n "${TANDEM_BROWSER:-}" ] && return
	for n in chromium chromium-browser chromium-headless-shell google-chrome google-chrome-stable chrome; do
		if have $n; then return 0; fi
	done
	return 1
}

install_browser() {
	[ -n "$log" ] || log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	say "looking for a browser for tests"
	apt-get update -qq </dev/null >"$log" 2>&1 || :
	for n in chromium-headless-shell chromium; do
		in_archive $n || continue
		say "installing $n"
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $n </dev/null >"$log" 2>&1 && return
	done
	say "warning: no Chromium can be installed; tests of the report's page are skipped"
}

# virt-xml-validate, for the tests of vNUMA (crates/tandem/tests/vnuma.rs).
install_schema() {
	[ -n "$log" ] || log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	say "installing libvirt-clients and libxml2-utils for tests"
	apt-get update -qq </dev/null >"$log" 2>&1 || :
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libvirt-clients libxml2-utils </dev/null >"$log" 2>&1 ||
		say "warning: they cannot be installed; tests of libvirt's domains are skipped"
}

main() {
	packages=$(missing_packages | tr '\n' ' ')
	rust_is_new_enough && rust=yes || rust=no
	clang=$(clang_found)
	if [ -z "$packages" ] && [ $rust = yes ] && [ -n "$clang" ]; then
		say "all there: $(cargo --version | cut -d' ' -f1-2), $clang"
		return
	fi
	wanted="$packages"
	[ $rust = yes ] || wanted="$wanted cargo 1.$RUST_MIN or later"
	[ -n "$clang" ] || wanted="$wanted clang $CLANG_MIN or later"
	have apt-get || fail "machine: cannot install $wanted: seen no apt-get, allowed Debian 12 or later; install them by hand"
	[ "$(id -u)" = 0 ] || fail "machine: cannot install $wanted: seen user id $(id -u), allowed root; run 'make bootstrap' as root"
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	say "reading the package lists"
	apt-get update -qq </dev/null >"$log" 2>&1 || { tail -n 5 "$log" >&2; fail "network: cannot read the package lists: apt-get said the above; check the network and /etc/apt"; }
	if grep -q '^[WE]:.*\(Failed to fetch\|Could not\)' "$log"; then
		say "warning: $(grep -m1 '^[WE]:' "$log")"
	fi
	# shellcheck disable=SC2086
	[ -z "$packages" ] || install_packages $packages
	if [ $rust = no ]; then
		rust_names=$(rust_packages)
		[ -n "$rust_names" ] || fail "rust: cannot install cargo: seen none of 1.$RUST_MIN or later in the archive; install it from https://rustup.rs"
		# shellcheck disable=SC2086
		install_packages $rust_names
	fi
	[ -n "$clang" ] || install_packages "$(clang_package)"
	if libelf_needs_zstd && ! header zstd.h; then install_packages libzstd-dev; fi
	hash -r
	rust_is_new_enough || fail "rust: cannot use $(command -v cargo || echo cargo): seen $(cargo --version 2>&1), allowed 1.$RUST_MIN or later; put the newer one first in PATH"
	say "all there: $(cargo --version | cut -d' ' -f1-2), $(clang_found)"
}

main
if [ "${1:-}" = browser ] && have apt-get && [ "$(id -u)" = 0 ]; then
	have virt-xml-validate && have xmllint || install_schema
fi
if [ "${1:-}" = browser ] && ! browser_found && have apt-get && [ "$(id -u)" = 0 ]; then install_browser; fi
