#!/bin/bash
# fuzz/hours.sh SECONDS [TARGET...]: run the fuzz targets (all of them, if none is named) for so long, in parallel.
#
# A find is a panic, an input that takes a minute, a single allocation of more than 64 MiB (the longest table that a
# format may have is of 32), or 1 GiB in all. It ends its target's run, and the script then fails; the input is in
# target/fuzz-finds/TARGET. Time is the clock's, and long on a busy machine: an input that takes over 10 seconds is
# kept there too, as slow-unit-*, but is no find. The corpus stays in target/fuzz-corpus/TARGET, the log is
# target/fuzz-TARGET.log.
# Printed for each target: runs, runs in a second, edges covered, inputs kept, the largest resident memory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${1:?usage: hours.sh SECONDS [TARGET...]}
shift
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export PATH=$target/tools/bin:$PATH
command -v cargo-fuzz >/dev/null || { echo 'hours.sh: cargo-fuzz is missing: run tests/run.sh, or cargo install cargo-fuzz' >&2; exit 1; }
[ $# -gt 0 ] || mapfile -t list < <(cargo fuzz list --fuzz-dir fuzz)
[ $# -eq 0 ] || list=("$@")

# cargo-fuzz needs unstable compiler flags; this lets the stable compiler take them.
RUSTC_BOOTSTRAP=1 cargo fuzz build --fuzz-dir fuzz --target-dir "$target/fuzz"
host=$(rustc -vV | sed -n 's/^host: //p')

running=()
trap '[ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null || true' EXIT
for name in "${list[@]}"; do
    corpus=$target/fuzz-corpus/$name finds=$target/fuzz-finds/$name
    bash fuzz/seeds.sh "$name" "$corpus"
    mkdir -p "$finds"
    # Some take up to 48 changes of 16 bytes of a volume or disc of their own.
    case $name in ntfs | shipped | udf | iso9660) longest=770 ;; *) longest=131072 ;; esac
    "$target/fuzz/$host/release/$name" "$corpus" -max_total_time="$seconds" -timeout=60 -max_len="$longest" -len_control=0 \
        -malloc_limit_mb=64 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$finds/" >"$target/fuzz-$name.log" 2>&1 &
    running+=($!)
done

failed=0
for name in "${list[@]}"; do
    log=$target/fuzz-$name.log
    if wait "${running[0]}"; then
        stat() { sed -n "s/^stat::$1: *//p" "$log"; }
        edges=$(grep -ao 'cov: [0-9]*' "$log" | tail -1)
        printf '%-10s %s runs, %s/s, %s, %s new inputs, %s MiB\n' "$name" "$(stat number_of_executed_units)" \
            "$(stat average_exec_per_sec)" "$edges" "$(stat new_units_added)" "$(stat peak_rss_mb)"
    else
        failed=1
        printf '%s: a find, see %s\n' "$name" "$log" >&2
        tail -40 "$log" >&2
    fi
    running=("${running[@]:1}")
done
exit $failed
