#!/bin/bash
# fuzz/discs.sh DIR: the small disc images that the targets "udf" and "iso9660" edit: DIR/udf and DIR/iso9660.
set -euo pipefail
out=${1:?usage: discs.sh DIR}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/tree/a/b/c/d/e/f/g/h/i" "$work/tree/sources"
head -c 20000 /dev/zero | tr '\0' w > "$work/tree/sources/install.wim"
for n in $(seq 1 12); do echo "$n" > "$work/tree/sources/a rather long name, number $n.txt"; done
echo deep > "$work/tree/a/b/c/d/e/f/g/h/i/deep.txt"
ln -s sources "$work/link"
python3 "$top/fixtures/udf_disc.py" "$work/tree" "$out/udf" scatter chain long
mv "$work/link" "$work/tree/link"
genisoimage -quiet -no-pad -input-charset iso8859-1 -r -J -iso-level 4 -V FUZZ -o "$out/iso9660" "$work/tree"
