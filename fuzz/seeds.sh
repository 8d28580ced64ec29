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
    hive | logs)
        python3 "$top/fixtures/empty_hive.py" "$work/empty"
        cp "$work/empty" "$work/setup"
        # shellcheck disable=SC1003 # a backslash, not an escape
        printf '%s\n' 'cd \' 'add Select' 'add Setup' 'cd Select' 'setval 1' Current dword:1 'cd \Setup' \
            'setval 3' SetupType dword:2 CmdLine 'string:oobe\windeploy.exe' UnattendFile 'string:D:\autounattend.xml' commit |
            hivexsh -w "$work/setup"
        cp "$work/setup" "$work/after"
        # shellcheck disable=SC1003
        { printf '%s\n' 'cd \Setup' 'add Status' 'cd Status'; for n in $(seq 40); do printf 'add Key%d\n' "$n"; done; echo commit; } |
            hivexsh -w "$work/after"
        if [ "$target" = hive ]; then
            # The last byte is the target's.
            for hive in empty setup after; do { cat "$work/$hive"; printf '\0'; } > "$out/$hive"; done
        else
            for kind in old new old-lost new-lost; do python3 "$top/fuzz/logs.py" "$work/setup" "$work/after" $kind "$out/$kind"; done
        fi
        ;;
    qcow2)
        truncate -s 96K "$work/raw"
        seq 4000 | dd of="$work/raw" bs=16K seek=3 conv=notrunc status=none
        for options in compat=0.10 compat=1.1 compression_type=zstd; do
            for size in 512 4096; do
                qemu-img convert -O qcow2 -o "$options,cluster_size=$size" "$work/raw" "$out/plain-$size-$options"
                qemu-img convert -c -O qcow2 -o "$options,cluster_size=$size" "$work/raw" "$out/compressed-$size-$options"
            done
        done
        ;;
    partitions)
        # The last byte is the target's: which checksums it makes right.
        qemu-img convert -O raw "$top/fixtures/demo/root.qcow2" "$work/raw"
        { head -c 17408 "$work/raw"; printf '\1'; } > "$out/gpt"
        sgdisk -m 1:2:3 "$work/raw" >/dev/null
        { head -c 512 "$work/raw"; printf '\0'; } > "$out/mbr"
        truncate -s 64M "$work/4k"
        python3 "$top/fixtures/gpt4096.py" "$work/4k" 16384 256:512:ebd0a0a2-b9e5-4433-87c0-68b6b72699c7:Windows
        { head -c 24576 "$work/4k"; printf '\2'; } > "$out/gpt-4096"
        truncate -s 40K "$work/small"
        sgdisk -a 1 -n 1:34:36 -t 1:0700 "$work/small" >/dev/null
        { cat "$work/small"; printf '\5'; } > "$out/gpt-whole"
        # A chain of logical partitions.
        truncate -s 16K "$work/chain"
        printf '%s\n' 'label: dos' '1,30,E' '2,4,83' '8,4,83' '14,4,83' | sfdisk --quiet "$work/chain" >/dev/null
        { cat "$work/chain"; printf '\0'; } > "$out/mbr-chain"
        ;;
    ntfs)
        # What is done (in each folder some answer files go, or all is read), and the target's own volume
        # (volume.sh) with one byte changed.
        for what in 000 001 002 160 161 162 200 203; do
            for which in 000 001 002 003 014; do
                { printf '%b' "\\0$what\\0$which"; printf '\2\100\0\60\0\0\0\0\0\0\0\0\0\0\0\0'; } > "$out/$what-$which"
            done
        done
        ;;
    shipped)
        # How it is read, and the same volume, which is not changed.
        printf '\0' > "$out/as-made"
        ;;
    udf | iso9660)
        # No change; one, in sectors of every kind.
        : > "$out/as-made"
        for sector in 1 2 3 4 5 6 9; do
            # Sector, place in it, length less one, whether checksums stay wrong, and ten bytes.
            printf '%b\0\070\0\0\1\0\0\0\0\0\0\0\0\0\0' "\\0$sector" > "$out/sector-$sector"
        done
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
    inf)
        cp "$top/fixtures/viostor.inf" "$out/utf8"
        iconv -f UTF-8 -t UTF-16 "$top/fixtures/viostor.inf" > "$out/utf16"
        sed 's/Fixture/Fixt\xfcre/' "$top/fixtures/viostor.inf" > "$out/windows-1252"
        sed 's/$/\r/' > "$out/every" <<'EOF'
[version]
signature=$Chicago$
CatalogFile.NTamd64=a.cat
DriverVer=%d%,1.2
[SourceDisksNames.amd64]
1=x,,,\bin
[SourceDisksFiles.amd64]
a.sys=1,sub
[x.NT]
CopyFiles=@b.dll, \ ; and
 "list"
Include=usb.inf
[list]
c.sys,d.sys,,"a ""b"""
[strings]
d=01/02/2003
EOF
        ;;
    wim | wim_xml)
        bash "$top/fixtures/make-windows-media.sh" "$work/media" client esd swm
        for archive in client/install.wim esd/install.esd swm/install.swm; do
            wimlib-imagex info --xml "$work/media/$archive" > "$work/xml"
            if [ "$target" = wim_xml ]; then
                # The last byte is the target's: as text, and as it stands.
                { tail -c +3 "$work/xml" | iconv -f UTF-16LE -t UTF-8; printf '\0'; } > "$out/text-${archive##*.}"
                { cat "$work/xml"; printf '\1'; } > "$out/bytes-${archive##*.}"
            else
                # Header and XML are read: what is between them is left out.
                python3 - "$work/media/$archive" "$work/xml" "$out/${archive##*.}" <<'EOF'
import struct, sys
header = bytearray(open(sys.argv[1], 'rb').read(208))
struct.pack_into('<Q', header, 80, 208)
open(sys.argv[3], 'wb').write(bytes(header) + open(sys.argv[2], 'rb').read())
EOF
            fi
        done
        ;;
    cat)
        # With the roots behind; `many` is too large to be fuzzed.
        bash "$top/fixtures/make-drivers.sh" "$work/drivers"
        for case in right pkcs9 octets now sha1 p384 server; do
            cat "$work/drivers/$case/viostor.cat" "$work/drivers/pki/root.pem" > "$out/$case"
        done
        ;;
    *)
        echo "seeds.sh: no seeds are known for $target" >&2
        exit 1
        ;;
esac
