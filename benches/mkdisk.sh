#!/bin/bash
# benches/mkdisk.sh DIR [large]: make DIR/root-8g.raw, the disk that the benchmarks read, unless it is there.
#
# 8 GiB raw, sparse, GPT, with about 2.3 GiB allocated on a generalised, Windows-like NTFS volume: 1.4 GiB
# of programs, libraries and text of this machine, 0.5 GiB that does not compress, 0.1 GiB of zeroes in
# pagefile.sys, the hives and files of fixtures/. With "large", DIR/root-8g-large.raw: hives of 24 and 100 MiB
# (large-hives.sh) and 200,000 files more. Needs root, for FUSE.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=${1:?usage: mkdisk.sh DIR [large]} large=${2:-}
die() { echo "mkdisk.sh: $*" >&2; exit 1; }
mkdir -p "$dir"
disk=$dir/root-8g${large:+-large}.raw
[ ! -e "$disk" ] || exit 0
for tool in sgdisk mkfs.vfat mkntfs ntfs-3g python3; do command -v $tool >/dev/null || die "$tool is missing: run tests/run.sh"; done
[ -w /dev/fuse ] || die 'no access to /dev/fuse: run as root'

work=$(mktemp -d -p "$dir")
fuse=''
cleanup() {
    [ -z "$fuse" ] || { umount "$work/mount"; wait "$fuse"; } || true
    rm -rf "$work"
}
trap cleanup EXIT
start=239616 mib=8060 # of the NTFS volume: first sector, size
truncate -s 8G "$work/disk"
sgdisk -n 1:2048:+100M -t 1:ef00 -n 2:0:+16M -t 2:0c01 -n "3:$start:+${mib}M" -t 3:0700 "$work/disk" >/dev/null
mkfs.vfat -F 32 -s 1 -n SYSTEM --offset 2048 "$work/disk" 102400 >/dev/null 2>&1
truncate -s ${mib}M "$work/ntfs"
mkntfs -q -Q -F -L Windows -p $start -H 255 -S 63 "$work/ntfs" >/dev/null 2>&1
"$top/fixtures/make-hives.sh" "$work/hives"
[ -z "$large" ] || "$top/benches/large-hives.sh" "$work/hives"
mkdir "$work/mount"
ntfs-3g -o no_detach,no_def_opts,silent,big_writes,streams_interface=xattr "$work/ntfs" "$work/mount" 2>"$work/fuse.log" &
fuse=$!
for _ in $(seq 200); do
    grep -qs " $work/mount " /proc/mounts && break
    kill -0 "$fuse" 2>/dev/null || die "ntfs-3g failed: $(cat "$work/fuse.log")"
    sleep 0.05
done
mkdir -p "$work/mount/Windows/System32/config" "$work/mount/Windows/WinSxS"
cp "$work/hives/SYSTEM" "$work/hives/SOFTWARE" "$work/mount/Windows/System32/config/"
python3 "$top/fixtures/tree.py" "$work/mount"
{ find "$(rustc --print sysroot)" /usr/lib /usr/bin -xdev -type f -size +16k -size -60M 2>/dev/null || true; } | sort > "$work/files"
python3 - "$work/files" "$work/mount" "$large" <<'P'
import os, random, shutil, sys

names, volume = open(sys.argv[1]).read().splitlines(), sys.argv[2]
folders = ["Windows/System32", "Windows/WinSxS", "Program Files"]
left = 1400 << 20
for number, name in enumerate(names):
    left -= os.path.getsize(name)
    if left < 0:
        break
    shutil.copyfile(name, f"{volume}/{folders[number % 3]}/{number:06}_{os.path.basename(name).replace(':', '_')}")
rng = random.Random(8)
with open(f"{volume}/Windows/WinSxS/compressed.bin", "wb") as out:
    for _ in range(500):
        out.write(rng.randbytes(1 << 20))
with open(f"{volume}/pagefile.sys", "wb") as out:
    for _ in range(100):
        out.write(bytes(1 << 20))
if sys.argv[3]:
    for number in range(200_000):
        folder = f"{volume}/Windows/WinSxS/component-{number // 500:03}_31bf3856ad364e35_10.0.26100.1"
        if number % 500 == 0:
            os.mkdir(folder)
        with open(f"{folder}/{number:06}.manifest", "wb", buffering=0) as out:
            out.write(b"a stand-in for a file of some hundred bytes " * (number % 30 + 1))
P
umount "$work/mount"
wait "$fuse"
fuse=''
dd if="$work/ntfs" of="$work/disk" bs=1M seek=$((start / 2048)) conv=sparse,notrunc status=none
mv "$work/disk" "$disk"
