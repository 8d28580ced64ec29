#!/bin/bash
# fuzz/volume.sh FILE: the small NTFS volume that the target "ntfs" edits.
#
# It has answer files of every kind: resident, in clusters, and in so many pieces that their map takes several
# records; in an index root, in the leaves of an index and between them; with 8.3 names, with other names, with so
# many that they take several records; with an object identifier. Its $LogFile was closed by Windows, as it were.
# Needs FUSE.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${1:?usage: volume.sh FILE}
work=$(mktemp -d)
fuse=''
cleanup() {
    [ -z "$fuse" ] || { fusermount3 -u "$work/mount" || umount "$work/mount"; wait "$fuse"; } || true
    rm -rf "$work"
}
trap cleanup EXIT
truncate -s 1536K "$work/ntfs"
mkntfs -q -Q -F -p 2048 -H 255 -S 63 -c 512 "$work/ntfs" >/dev/null 2>&1
panther=$work/tree/Windows/Panther sysprep=$work/tree/Windows/System32/Sysprep
mkdir -p "$work/tree/Windows/System32/config" "$panther/Unattend" "$sysprep"
seq 2000 > "$work/tree/Windows/System32/config/SYSTEM"
for n in $(seq 24); do echo "$n" > "$panther/a log with a longer name $n"; done
echo '<unattend/>' > "$panther/unattend.xml"
seq -s ' ' 1500 > "$panther/unattend-original.xml"
seq -s ' ' 700 > "$sysprep/unattend.xml"
ln "$sysprep/unattend.xml" "$panther/unattend-linked.xml"
seq -s ' ' 900 > "$sysprep/autounattend.xml"
for n in $(seq 9); do ln "$sysprep/autounattend.xml" "$sysprep/another name of the same unattend file, $n"; done
name=$(printf 'a long name %.0s' $(seq 10))
for n in $(seq 36); do echo "$n" > "$panther/Unattend/$name, unattend $n"; done
wimlib-imagex capture "$work/tree" "$work/wim" --compress=none --no-acls >/dev/null
wimlib-imagex apply "$work/wim" 1 "$work/ntfs" >/dev/null

mkdir "$work/mount"
ntfs-3g -o no_detach,no_def_opts,silent "$work/ntfs" "$work/mount" 2>"$work/fuse.log" &
fuse=$!
for _ in $(seq 200); do
    grep -qs " $work/mount " /proc/mounts && break
    kill -0 "$fuse" 2>/dev/null || { cat "$work/fuse.log" >&2; exit 1; }
    sleep 0.05
done
python3 "$here/volume.py" mounted "$work/mount"
fusermount3 -u "$work/mount" || umount "$work/mount"
wait "$fuse"
fuse=''
log=$(ntfsinfo -v -i 2 "$work/ntfs" | awk '/VCN.*LCN/ { getline; print $2; exit }')
python3 "$here/volume.py" closed "$work/ntfs" $((log))
mv "$work/ntfs" "$out"
