#!/bin/bash
# What it costs to say what a medium holds, against `7zz l` and `wimlib-imagex info`.
#
#     cargo build --release && benches/media.sh DIR [ROUNDS]
#
# DIR keeps the media: a Windows ISO of over 4 GiB (sparse), and a virtio-win ISO in full. `7zz l` lists files and does
# not open the WIM; wimlib gets the WIM taken out beforehand, which it reads on its own. Commands take turns; each figure
# is the median of ROUNDS (21), with the page cache warm. The bytes are what pread64 returns, by strace.
set -euo pipefail

dir=${1:?usage: media.sh DIR [ROUNDS]}
rounds=${2:-21}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
sealroot=${SEALROOT:-$top/target/release/sealroot}
[ -x "$sealroot" ] || { echo "$sealroot is not there: cargo build --release, or set SEALROOT" >&2; exit 1; }
mkdir -p "$dir"
[ -e "$dir/virtio.iso" ] || bash "$top/fixtures/make-windows-media.sh" "$dir" client large virtio
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Adds the wall clock of one run, in microseconds, to the file of that name.
run() {
    local begun ended
    begun=$(date +%s%N)
    "${@:2}" >"$work/output" 2>&1
    ended=$(date +%s%N)
    echo $(((ended - begun) / 1000)) >>"$work/$1.times"
}
# The median, in microseconds.
median() { sort -n "$work/$1.times" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
ratio() { awk "BEGIN { printf \"%.2f\", $(median "$1") / $(median "$2") }"; }
bytes_read() {
    strace -f -e trace=pread64 -o "$work/trace" "$@" >"$work/output"
    # Only files are read with pread64.
    awk '/pread64/ { sum += $NF } END { print sum + 0 }' "$work/trace"
}

for _ in $(seq "$rounds"); do
    run inspect "$sealroot" media inspect "$dir/large.iso"
    run list 7zz l "$dir/large.iso"
    run wimlib wimlib-imagex info "$dir/client/install.wim"
    run drivers "$sealroot" media inspect "$dir/virtio.iso"
    run drivers-list 7zz l "$dir/virtio.iso"
done

for medium in large virtio; do
    echo "$medium.iso: $(stat -c %s "$dir/$medium.iso") bytes, of which $(bytes_read "$sealroot" media inspect "$dir/$medium.iso") are read (bound: 1048576)"
done
for name in inspect list wimlib drivers drivers-list; do
    awk "BEGIN { printf \"%-14s %.1f ms\\n\", \"$name\", $(median $name) / 1000 }"
done
echo "media inspect / 7zz l, Windows: $(ratio inspect list)"
echo "media inspect / wimlib-imagex info of the WIM alone: $(ratio inspect wimlib)"
echo "media inspect / 7zz l, drivers: $(ratio drivers drivers-list)"
for name in inspect drivers; do
    [ "$(median $name)" -lt 50000 ] || echo "$name: over the bound of 50 ms"
done
