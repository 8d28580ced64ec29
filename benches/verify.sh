#!/bin/sh
# What verifying costs, against `openssl dgst -sha256` on the same files in the same run.
#
#     cargo build --release && benches/verify.sh [MIB] [ROUNDS]
#
# Prints ratios: below 1.05 means within 5% of openssl; two files on two cores should be near 2 times one.
# Every figure is the best of ROUNDS, with all files in the page cache.
set -eu

mib=${1:-1024}
rounds=${2:-5}
sealroot=${SEALROOT:-$(dirname "$0")/../target/release/sealroot}
[ -x "$sealroot" ] || { echo "$sealroot is not there: cargo build --release, or set SEALROOT" >&2; exit 1; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Two images whose bytes can't be told from random ones, and a small one.
mkdir "$dir/a" "$dir/b" "$dir/c"
for name in a b; do
    openssl enc -aes-128-ctr -pass pass:$name -nosalt -pbkdf2 </dev/zero 2>/dev/null | head -c "${mib}M" >"$dir/$name/data"
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

# The best time of a command, in milliseconds.
best() {
    least=
    for _ in $(seq "$rounds"); do
        start=$(date +%s%N)
        "$@" >/dev/null
        took=$(( ($(date +%s%N) - start) / 1000000 ))
        if [ -z "$least" ] || [ "$took" -lt "$least" ]; then least=$took; fi
    done
    echo "$least"
}
ratio() { awk "BEGIN { printf \"%.3f\", $1 / $2 }"; }

openssl=$(best openssl dgst -sha256 "$dir/a.iso")
one=$(best "$sealroot" --quiet verify "$dir/one.toml")
two=$(best "$sealroot" --quiet verify "$dir/two.toml")
echo "one file of $mib MiB: openssl $openssl ms, verify $one ms"
echo "verify / openssl: $(ratio "$one" "$openssl")"
echo "two files, rate over that of one: $(ratio "2 * $one" "$two") (on $(nproc) cores)"
