#!/bin/bash
# fuzz/volume.sh FILE: the small NTFS volume that the target "ntfs" edits.
#
# It has answer files of every kind: resident and in clusters, in an index root and in index blocks, with other
# names, and with so many names that its attributes take several records.
set -euo pipefail
out=${1:?usage: volume.sh FILE}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
truncate -s 1536K "$work/ntfs"
mkntfs -q -Q -F -p 2048 -H 255 -S 63 -c 512 "$work/ntfs" >/dev/null 2>&1
panther=$work/tree/Windows/Panther sysprep=$work/tree/Windows/System32/Sysprep
mkdir -p "$work/tree/Windows/System32/config" "$panther" "$sysprep"
seq 2000 > "$work/tree/Windows/System32/config/SYSTEM"
for n in $(seq 24); do echo "$n" > "$panther/a log with a longer name $n"; done
echo '<unattend/>' > "$panther/unattend.xml"
seq -s ' ' 1500 > "$panther/unattend-original.xml"
seq -s ' ' 700 > "$sysprep/unattend.xml"
ln "$sysprep/unattend.xml" "$panther/unattend-linked.xml"
seq -s ' ' 900 > "$sysprep/autounattend.xml"
for n in $(seq 9); do ln "$sysprep/autounattend.xml" "$sysprep/another name of the same file, which is long, $n"; done
wimlib-imagex capture "$work/tree" "$work/wim" --compress=none --no-acls >/dev/null
wimlib-imagex apply "$work/wim" 1 "$work/ntfs" >/dev/null
mv "$work/ntfs" "$out"
