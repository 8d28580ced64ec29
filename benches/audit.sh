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
cat "$disk" "$work/ntfs" >/dev/null # all find their disk in the page cache as far as it fits

python3 - "$work" "$runs" "$SEALROOT" "$disk" <<'P'
import json, os, re, statistics, subprocess, sys, time

work, runs, sealroot, disk = sys.argv[1], int(sys.argv[2]), os.path.realpath(sys.argv[3]), sys.argv[4]
folder = os.path.dirname(disk)
ways = {"tools": ["bash", f"{work}/tools", f"{work}/ntfs"]}
for ending, root in [("", disk), ("-large", f"{work}/large")]:
    ways["audit" + ending] = [sealroot, "--quiet", "audit", "--disk", root]
    ways["seal" + ending] = [sealroot, "--quiet", "prepare-sealed-root", "--disk", root, "--patch", "patch"]


def once(command):
    """CPU seconds and wall seconds."""
    if os.path.exists(f"{work}/patch"):
        os.unlink(f"{work}/patch")
    start = time.monotonic()
    with open(f"{work}/log", "w") as log:
        child = subprocess.Popen(command, cwd=work, stdout=log, stderr=log)
        _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"audit.sh: {command} failed: {open(f'{work}/log').read()}")
    return used.ru_utime + used.ru_stime, time.monotonic() - start


def memory(command):
    """The largest resident memory of a process, in MiB; what wait4 says is at least that of this one."""
    once(["/usr/bin/time", "-o", f"{work}/time", "-f", "%M", *command])
    return int(open(f"{work}/time").read()) / 1024


def read(command):
    """MiB that reads return, but for those of files outside of DIR: libraries and the like."""
    calls = ["-e", "trace=read,pread64,readv,preadv", "-e", "signal=none"]
    once(["strace", "-f", "-qq", "-y", "-s", "0", *calls, "-o", f"{work}/strace", *command])
    total = 0
    for line in open(f"{work}/strace", errors="replace"):
        match = re.search(r"\((\d+)<([^>]*)>.* = (\d+)$", line)
        if match and match[2].startswith(folder):
            total += int(match[3])
    return total / 1048576


amounts = {way: [memory(command), read(command)] for way, command in ways.items()}
times = {way: [] for way in ways}
for _ in range(runs):
    for way, command in ways.items():
        times[way].append(once(command))

columns = ["CPU s", "wall s", "memory MiB", "read MiB"]
print(f"\nmedian of {runs}\n{'':12}" + "".join(f"{column:>13}" for column in columns))


def show(name, values):
    print(f"{name:12}" + "".join(f"{value:13.3f}" for value in values))


figures = {way: [statistics.median(column) for column in zip(*times[way])] + amounts[way] for way in ways}
for way in ways:
    show(way, figures[way])
for ending in ["", "-large"]:
    audit, seal = figures["audit" + ending], figures["seal" + ending]
    both = [a + b for a, b in zip(audit, seal)]
    both[2] = max(audit[2], seal[2])
    show("both" + ending, both)
    show("tools / both", [a / b for a, b in zip(figures["tools"], both)])
    for column, bound in [("CPU s", 0.5), ("memory MiB", 64), ("read MiB", 64)]:
        value = both[columns.index(column)]
        print(f"{column}: {value:.3f}, {'within' if value <= bound else 'OVER'} {bound}")
edits = json.load(open(f"{work}/patch"))["edits"]
size, changed = os.path.getsize(f"{work}/patch"), sum(len(edit["new"]) // 2 for edit in edits)
print(f"patch: {size} bytes, {'within' if size <= 32768 else 'OVER'} 32768; {changed} bytes change in {len(edits)} places")
P
