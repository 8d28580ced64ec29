#!/bin/bash
# benches/audit.sh DIR [RUNS]: what `sealroot audit` and `prepare-sealed-root --patch` cost, against public tools.
#
# DIR keeps the disk (8 GiB sparse, hives of 24 and 100 MiB, 200,000 files; made once by mkdisk.sh) and holds what
# is written meanwhile. Each way is run RUNS times (default 5), in turn, on the disk in the page cache; the median
# is shown. The public tools copy both hives out, read one value, set one and copy SYSTEM back, into a copy of the
# volume that is made for it and not counted: they need the volume as a file of its own, sealroot does not.
# Then sealroot once more on the same disk with 64 times the size, its backup GPT moved to the end.
# SEALROOT=PATH is a binary to use instead of a release build. Needs root, as mkdisk.sh does.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=${1:?usage: audit.sh DIR [RUNS]} runs=${2:-5}
die() { echo "audit.sh: $*" >&2; exit 1; }
for tool in strace sgdisk ntfscat ntfscp hivexget hivexregedit python3 /usr/bin/time; do
    command -v $tool >/dev/null || die "$tool is missing: run tests/run.sh, and install the package time"
done
if [ -z "${SEALROOT:-}" ]; then
    cargo build --release --locked --manifest-path "$top/Cargo.toml"
    SEALROOT=${CARGO_TARGET_DIR:-$top/target}/release/sealroot
fi
"$top/benches/mkdisk.sh" "$dir" large
disk=$(realpath "$dir/root-8g-large.raw")
work=$(realpath "$(mktemp -d -p "$dir")")
trap 'rm -rf "$work"' EXIT

# The public tools' volume, and the disk with 64 times the size; holes stay holes.
start=$((239616 * 512)) size=$((8060 << 20))
truncate -s $size "$work/ntfs"
dd if="$disk" of="$work/ntfs" bs=1M skip=$((start >> 20)) count=$((size >> 20)) conv=sparse,notrunc status=none
cp --sparse=always "$disk" "$work/large"
truncate -s 512G "$work/large"
sgdisk -e "$work/large" >/dev/null

cat > "$work/tools" <<'S' # VOLUME
set -euo pipefail
for hive in SYSTEM SOFTWARE; do ntfscat "$1" "/Windows/System32/config/$hive" > "$hive"; done
hivexget SOFTWARE 'Microsoft\Windows\CurrentVersion\Setup\State' ImageState
printf 'Windows Registry Editor Version 5.00\n\n[\\Setup]\n"UnattendFile"="D:\\\\autounattend.xml"\n' > pointer.reg
hivexregedit --merge SYSTEM pointer.reg
ntfscp -f "$1" SYSTEM /Windows/System32/config/SYSTEM
S
cat > "$work/audit" <<'S' # DISK SEALROOT
set -euo pipefail
"$2" --quiet audit --disk "$1"
S
cat > "$work/seal" <<'S' # DISK SEALROOT
set -euo pipefail
rm -f patch
"$2" --quiet prepare-sealed-root --disk "$1" --patch patch
S

# once WAY DISK: append `CPU-s wall-s MiB-of-memory` to $work/WAY.times.
once() {
    local way=$1 kind=${1%-large}
    (cd "$work" && /usr/bin/time -o "$work/time" -f '%e %U %S %M' bash "$work/$kind" "$2" "$SEALROOT" >"$work/$way.log" 2>&1) ||
        die "$way failed: $(cat "$work/$way.log")"
    awk '{ printf "%.2f %.2f %.1f\n", $2 + $3, $1, $4 / 1024 }' "$work/time" >> "$work/$way.times"
}
# bytes_read WAY DISK: what the process and its children read of files, in bytes: all reads but those of their own
# libraries, which lie outside of DIR.
bytes_read() {
    (cd "$work" && strace -f -qq -y -s 0 -e trace=read,pread64,readv,preadv -e signal=none -o "$work/strace" \
        bash "$work/${1%-large}" "$2" "$SEALROOT" >/dev/null 2>&1)
    python3 - "$work/strace" "$(dirname "$disk")" <<'P'
import re, sys

total = 0
for line in open(sys.argv[1], errors="replace"):
    match = re.search(r"\((\d+)<([^>]*)>.* = (\d+)$", line)
    if match and match[2].startswith(sys.argv[2]):
        total += int(match[3])
print(total)
P
}

cat "$disk" "$work/ntfs" >/dev/null # all find their disk in the page cache as far as it fits
declare -A disks=([tools]=$work/ntfs [audit]=$disk [seal]=$disk [audit-large]=$work/large [seal-large]=$work/large)
ways=(tools audit seal audit-large seal-large)
for way in "${ways[@]}"; do bytes_read "$way" "${disks[$way]}" > "$work/$way.read"; done
for _ in $(seq "$runs"); do
    for way in "${ways[@]}"; do once "$way" "${disks[$way]}"; done
done

python3 - "$work" "$runs" "$work/patch" "${ways[@]}" <<'P'
import json, os, statistics, sys

work, runs, patch, ways = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
columns = ["CPU s", "wall s", "memory MiB", "read MiB"]
figures = {}
print(f"\nmedian of {runs}\n{'':12}" + "".join(f"{column:>13}" for column in columns))
for way in ways:
    rows = [[float(cell) for cell in line.split()] for line in open(f"{work}/{way}.times")]
    read = int(open(f"{work}/{way}.read").read()) / 1048576
    figures[way] = [statistics.median(column) for column in zip(*rows)] + [read]
    print(f"{way:12}" + "".join(f"{value:13.2f}" for value in figures[way]))
edits = json.load(open(patch))["edits"]
changed = sum(len(edit["new"]) // 2 for edit in edits)
print(f"patch: {os.path.getsize(patch)} bytes of JSON, {changed} bytes change in {len(edits)} places")

both = [a + b for a, b in zip(figures["audit"], figures["seal"])]
both[2] = max(figures["audit"][2], figures["seal"][2])
ratios = [a / b if b else float("inf") for a, b in zip(figures["tools"], both)]
print(f"{'both':12}" + "".join(f"{value:13.2f}" for value in both))
print(f"{'tools / both':12}" + "".join(f"{value:13.2f}" for value in ratios))
for way, bound in [("CPU s", 0.5), ("memory MiB", 64), ("read MiB", 64)]:
    value = both[columns.index(way)]
    print(f"{way}: {value:.2f}, {'within' if value <= bound else 'OVER'} {bound}")
print(f"patch: {'within' if os.path.getsize(patch) <= 32768 else 'OVER'} 32 KiB")
P
