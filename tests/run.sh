#!/bin/bash
# tests/run.sh: every check and every test of Sealroot. Stops at the first that fails.
#
# What the tests need and is missing is installed first: Debian packages when root (otherwise the command
# to run is printed), cargo-deny and cargo-fuzz into target/tools. Nothing else on the machine is changed.
# FUZZ_SECONDS=N sets how long each fuzz target runs (default 10).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
export PATH=$target/tools/bin:$PATH

step() { printf '\n== %s (%d s)\n' "$*" $SECONDS; }
has() { command -v "$1" >/dev/null; }

step 'Debian packages'
# command:package
needed='wimlib-imagex:wimtools genisoimage:genisoimage isoinfo:genisoimage 7zz:7zip sgdisk:gdisk mkntfs:ntfs-3g ntfs-3g:ntfs-3g
fusermount3:fuse3 mcopy:mtools mkfs.vfat:dosfstools hivexsh:libhivex-bin hivexregedit:libwin-hivex-perl
reged:chntpw qemu-img:qemu-utils skopeo:skopeo umoci:umoci docker-registry:docker-registry
htpasswd:apache2-utils xmllint:libxml2-utils openssl:openssl osslsigncode:osslsigncode python3:python3 shellcheck:shellcheck
cc:gcc git:git strace:strace losetup:mount sfdisk:fdisk mkfs.ext4:e2fsprogs qemu-nbd:qemu-utils zstd:zstd pzstd:zstd'
missing=()
for pair in $needed; do has "${pair%%:*}" || missing+=("${pair##*:}"); done
install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ ${#missing[@]} = 0 ]; then
    echo 'all there'
elif [ "$(id -u)" = 0 ] && has apt-get; then
    apt-get update -q
    # Debian starts docker-registry as a service: the tests start their own.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 "${install[@]}"
else
    printf 'The tests need tools that are not here. As root:\n\n    apt-get update && %s\n' "${install[*]}" >&2
    exit 1
fi

# tool NAME VERSION: a cargo subcommand, built without optimising: it is used for seconds.
tool() {
    has "$1" || CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo install --quiet --locked --root "$target/tools" --target-dir "$target/tools/build" "$1@$2"
    rm -rf "$target/tools/build"
}

step 'formatting'
cargo fmt --check

step 'shell scripts'
shellcheck tests/*.sh fixtures/*.sh fuzz/*.sh benches/*.sh

step 'clippy'
cargo clippy --locked --all-targets -- -D warnings

step 'the parsers alone: no async runtime, no command line'
cargo check --locked --no-default-features --lib

step 'documentation'
RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps

step 'licences, banned crates, sources'
tool cargo-deny 0.20.2
cargo deny --log-level error check bans licenses sources
if compgen -G "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs/*" >/dev/null; then
    cargo deny --log-level error check --disable-fetch advisories
else
    echo 'Security advisories: NOT checked, their database is not here. With a network: cargo deny fetch'
fi

step 'commands of README.md'
bash tests/readme.sh

step 'fuzz targets, a short run each'
tool cargo-fuzz 0.13.2
fuzz/hours.sh "${FUZZ_SECONDS:-10}"

step 'examples in the documentation'
cargo test --locked --doc

step 'tests'
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --no-fail-fast
else
    cargo test --locked --no-fail-fast --lib --bins --tests
fi
