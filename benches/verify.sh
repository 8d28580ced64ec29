#!/bin/bash
# What verifying costs, against `openssl dgst -sha256` on the same files in the same run.
#
#     cargo build --release && benches/verify.sh [MIB] [ROUNDS]
#
# Prints ratios: below 1.05 means within 5% of openssl; two files on two cores should be near 2 times one.
# Commands take turns; each figure is the best of ROUNDS, with all files in the page cache. On a machine that does
# other work too, only the ratio of processor time means something.
set -euo pipefail

mib=${1:-1024}
rounds=${2:-5}
sealroot=${SEALROOT:-$(dirname "$0")/../target/release/sealroot}
[ -x "$sealroot" ] || { echo "$sealroot is not there: cargo build --release, or set SEALROOT" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Two images whose bytes can't be told from random ones, and a small one.
mkdir "$dir/a" "$dir/b" "$dir/c"
for name in a b; do
    head -c "${mib}M" /dev/zero | openssl enc -aes-128-ctr -pass "pass:$name" -nosalt -pbkdf2 >"$dir/$name/data"
    genisoimage -quiet -r -V "$name" -o "$dir/$name.iso" "$dir/$name"
    rm "$dir/$name/data"
done
echo small >"$dir/c/data"
genisoimage -quiet -r -V c -o "$dir/c.iso" "$dir/c"

pin() { openssl dgst -sha256 -r "$dir/$1.iso" | cut -c1-64; }
recipe() {
    cat <<TOML
schema = 1
name = "bench"
[media.windows]
file = "$1.iso"
sha256 = "$(pin "$1")"
[media.virtio]
file = "$2.iso"
sha256 = "$(pin "$2")"
TOML
}
recipe a c >"$dir/one.toml"
recipe a b >"$dir/two.toml"

TIMEFORMAT='%R %U %S'
# Adds the wall clock and processor time of one run, in seconds, to the file of that name.
run() {
    local name=$1
    shift
    { time "$@" >"$dir/output" 2>&1; } 2>&1 | awk '{ print $1, $2 + $3 }' >>"$dir/$name.times"
}
# The least of a column: 1 is the wall clock, 2 processor time.
best() { sort -n -k "$2,$2" "$dir/$1.times" | awk -v column="$2" 'NR == 1 { print $column }'; }
ratio() { awk "BEGIN { printf \"%.3f\", ($1) / ($2) }"; }

for _ in $(seq "$rounds"); do
    run openssl openssl dgst -sha256 "$dir/a.iso"
    run one "$sealroot" --quiet verify "$dir/one.toml"
    run two "$sealroot" --quiet verify "$dir/two.toml"
done

echo "one file of $mib MiB: openssl $(best openssl 1) s, verify $(best one 1) s"
echo "verify / openssl, wall clock: $(ratio "$(best one 1)" "$(best openssl 1)")"
echo "verify / openssl, processor time: $(ratio "$(best one 2)" "$(best openssl 2)")"
echo "two files, rate over that of one: $(ratio "2 * $(best one 1)" "$(best two 1)") (on $(nproc) cores)"
