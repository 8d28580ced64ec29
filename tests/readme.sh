#!/bin/bash
# tests/readme.sh: run the commands of README.md as they stand, in order, in a fresh copy of the tree.
#
# A command is one line that begins with `$ ` inside a ```console fence. Each must succeed.
# `tests/run.sh` is passed over: it is what runs this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/tree"
# What git tracks, as it is now: no build output, nothing left by an earlier run.
if git ls-files -z > "$copy/files" 2>/dev/null; then
    tar --create --null --files-from="$copy/files" | tar --extract -C "$copy/tree"
else # an export: there is no repository around it
    tar --create --exclude=./target --exclude=./out . | tar --extract -C "$copy/tree"
fi

# A build folder of its own, kept, and a release profile that builds faster than it runs.
export CARGO_TARGET_DIR=$target/readme CARGO_INSTALL_ROOT=$copy/installed
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
export PATH=$copy/installed/bin:$CARGO_TARGET_DIR/release:$PATH
cd "$copy/tree"
ran=0
while IFS= read -r command; do
    case $command in tests/run.sh | 'bash tests/run.sh') continue ;; esac
    printf '\n$ %s\n' "$command"
    bash -euo pipefail -c "$command" </dev/null || {
        echo "readme.sh: exit status $? from a command of README.md: $command" >&2
        exit 1
    }
    ran=$((ran + 1))
done < <(awk '/^```/ { console = !open && $0 == "```console"; open = !open } console && sub(/^\$ /, "")' README.md)
[ "$ran" -gt 0 ] || { echo 'readme.sh: README.md has no ```console fence with a command' >&2; exit 1; }
printf '\n%d commands of README.md ran\n' "$ran"
