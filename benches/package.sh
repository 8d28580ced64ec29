#!/bin/bash
# benches/package.sh DIR [RUNS]: `sealroot package --output` against zstd and openssl, from one disk into a file.
#
# DIR keeps the disk (8 GiB sparse, made once by mkdisk.sh) and holds all that is written meanwhile. The tools get an
# easier start: the disk's kept bytes in one file, made beforehand by sealroot itself (`package --compression none`).
# - zstd:     zstd -3 -T0 of that file, synced to disk as sealroot does, then openssl dgst -sha256 of the result
# - sealroot: audit, map, read, tar, compress, hash twice, layout, synced
# Then the same disk with ten times the virtual size, to see what that costs. RUNS times in turn (default 3); medians.
# SEALROOT=PATH is a binary to use instead of a release build.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=${1:?usage: package.sh DIR [RUNS]} runs=${2:-3}
die() { echo "package.sh: $*" >&2; exit 1; }
for tool in zstd openssl sgdisk python3 /usr/bin/time; do
    command -v $tool >/dev/null || die "$tool is missing: run tests/run.sh, and install the package time"
done
if [ -z "${SEALROOT:-}" ]; then
    cargo build --release --locked --manifest-path "$top/Cargo.toml"
    SEALROOT=${CARGO_TARGET_DIR:-$top/target}/release/sealroot
fi
"$top/benches/mkdisk.sh" "$dir"
disk=$(realpath "$dir/root-8g.raw")
work=$(realpath "$(mktemp -d -p "$dir")")
trap 'rm -rf "$work"' EXIT

"$SEALROOT" package --disk "$disk" --compression none --output "$work/plain" >/dev/null 2>&1
tar=$(find "$work/plain/blobs" -type f -size +1M)
cp --sparse=always "$disk" "$work/large.raw"
truncate -s 80G "$work/large.raw"
sgdisk -e "$work/large.raw" >/dev/null

export SEALROOT tar disk work
cat > "$work/zstd" <<'W'
zstd -q -3 -T0 -f "$tar" -o "$work/out.zst"
sync "$work/out.zst"
openssl dgst -sha256 "$work/out.zst"
stat -c %s "$work/out.zst" > "$work/size"
W
cat > "$work/sealroot" <<'W'
rm -rf "$work/image"
"$SEALROOT" --quiet package --disk "$disk" --output "$work/image"
find "$work/image/blobs" -type f -size +1M -printf '%s\n' > "$work/size"
W
{ echo "disk=$work/large.raw"; cat "$work/sealroot"; } > "$work/80GiB"

ways=(zstd sealroot 80GiB)
cat "$disk" "$tar" >/dev/null # all find it in the page cache as far as it fits
for _ in $(seq "$runs"); do
    for way in "${ways[@]}"; do
        /usr/bin/time -o "$work/time" -f '%e %U %S %M' bash -euo pipefail "$work/$way" >/dev/null
        awk -v size="$(cat "$work/size")" '{ printf "%.2f %.2f %.0f %.1f\n", $1, $2 + $3, $4 / 1024, size / 1048576 }' \
            "$work/time" >> "$work/$way.times"
        printf '%s: %s\n' "$way" "$(tail -1 "$work/$way.times")" >&2
    done
done
python3 - "$work" "$runs" "${ways[@]}" <<'P'
import statistics, sys

work, runs, ways = sys.argv[1], sys.argv[2], sys.argv[3:]
columns = ["wall s", "CPU s", "memory MiB", "layer MiB"]
medians = {}
print(f"\nmedian of {runs}\n{'':16}" + "".join(f"{column:>13}" for column in columns))
for way in ways:
    rows = [[float(cell) for cell in line.split()] for line in open(f"{work}/{way}.times")]
    medians[way] = [statistics.median(column) for column in zip(*rows)]
    print(f"{way:16}" + "".join(f"{value:13.2f}" for value in medians[way]))
for one, other in [("sealroot", "zstd"), ("80GiB", "sealroot")]:
    ratios = [a / b if b else float("inf") for a, b in zip(medians[one], medians[other])]
    print(f"{one + ' / ' + other:16}" + "".join(f"{ratio:13.2f}" for ratio in ratios))
P
