#!/bin/bash
# fuzz/seeds.sh TARGET DIR: put small valid inputs for a fuzz target into DIR.
#
# They are made from the fixtures and with the same public tools, so that no corpus is kept in the repository.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${1:?usage: seeds.sh TARGET DIR} out=${2:?usage: seeds.sh TARGET DIR}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $target in
    hive)
        python3 "$top/fixtures/empty_hive.py" "$work/empty"
        cp "$work/empty" "$work/setup"
        # shellcheck disable=SC1003 # a backslash, not an escape
        printf '%s\n' 'cd \' 'add Select' 'add Setup' 'cd Select' 'setval 1' Current dword:1 'cd \Setup' \
            'setval 3' SetupType dword:2 CmdLine 'string:oobe\windeploy.exe' UnattendFile 'string:D:\autounattend.xml' commit |
            hivexsh -w "$work/setup"
        # The target takes the last two bytes for the length of a log file.
        for hive in empty setup; do { cat "$work/$hive"; printf '\0\0'; } > "$out/$hive"; done
        ;;
    qcow2)
        truncate -s 1M "$work/raw"
        seq 20000 | dd of="$work/raw" bs=64K seek=3 conv=notrunc status=none
        for options in compat=0.10 compat=1.1 cluster_size=4096 compression_type=zstd; do
            qemu-img convert -O qcow2 -o "$options" "$work/raw" "$out/plain-$options"
            qemu-img convert -c -O qcow2 -o "$options" "$work/raw" "$out/compressed-$options"
        done
        ;;
    partitions)
        qemu-img convert -O raw "$top/fixtures/demo/root.qcow2" "$work/raw"
        head -c 17408 "$work/raw" > "$out/gpt"
        sgdisk -m 1:2:3 "$work/raw" >/dev/null
        head -c 512 "$work/raw" > "$out/mbr"
        truncate -s 64M "$work/4k"
        python3 "$top/fixtures/gpt4096.py" "$work/4k" 16384 256:512:ebd0a0a2-b9e5-4433-87c0-68b6b72699c7:Windows
        head -c 24576 "$work/4k" > "$out/gpt-4096"
        ;;
    ntfs)
        truncate -s 2M "$work/ntfs"
        mkntfs -q -Q -F -p 2048 -H 255 -S 63 -c 512 "$work/ntfs" >/dev/null 2>&1
        mkdir -p "$work/tree/Windows/System32/config"
        seq 2000 > "$work/tree/Windows/System32/config/SYSTEM"
        for name in $(seq 30); do echo "$name" > "$work/tree/Windows/a file with a longer name $name"; done
        wimlib-imagex capture "$work/tree" "$work/wim" --compress=none --no-acls >/dev/null
        wimlib-imagex apply "$work/wim" 1 "$work/ntfs" >/dev/null
        cp "$work/ntfs" "$out/small"
        ;;
    layer)
        # Two frames and a seek table, around a tar with a small disk.
        mkdir "$work/disk"
        truncate -s 1M "$work/raw"
        seq 2000 | dd of="$work/raw" conv=notrunc status=none
        qemu-img convert -O qcow2 -o cluster_size=4096 "$work/raw" "$work/disk/disk.qcow2"
        tar -C "$work" -cf "$work/tar" disk
        python3 - "$work/tar" "$out/small" <<'EOF'
import struct, subprocess, sys
tar = open(sys.argv[1], 'rb').read()
parts = [tar[:8192], tar[8192:]]
frames = [subprocess.run(['zstd', '-q', '-c', '--no-check'], input=part, stdout=-1, check=True).stdout for part in parts]
table = b''.join(struct.pack('<II', len(frame), len(part)) for frame, part in zip(frames, parts))
table += struct.pack('<IBI', len(frames), 0, 0x8F92EAB1)
open(sys.argv[2], 'wb').write(b''.join(frames) + struct.pack('<II', 0x184D2A5E, len(table)) + table)
EOF
        ;;
    recipe)
        cp "$top"/recipes/*.toml "$out/"
        ;;
    *)
        echo "seeds.sh: no seeds are known for $target" >&2
        exit 1
        ;;
esac
