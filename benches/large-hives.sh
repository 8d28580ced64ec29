#!/bin/bash
# benches/large-hives.sh DIR: make the hives SYSTEM and SOFTWARE in DIR as large as those of a Windows in use.
#
# SYSTEM gets 24 MiB and some 10,000 keys, SOFTWARE 100 MiB and some 45,000: services and devices, classes and
# packages, none with more than a few hundred below it, as hivex wants the whole list anew for each.
set -euo pipefail
dir=${1:?usage: large-hives.sh DIR}

text=$(printf 'a value of some length, as a path or a description has; %.0s' $(seq 10))
# groups PATH GROUPS KEYS: below PATH, which is there, so many keys with so many keys each.
groups() {
    local group key
    for group in $(seq -w 1 "$2"); do
        printf 'cd \\%s\nadd Group%s\ncd Group%s\n' "$1" "$group" "$group"
        for key in $(seq -w 1 "$3"); do
            printf 'add Key%s\ncd Key%s\nsetval 2\n@\nstring:%s%s\nVersion\ndword:%s\ncd ..\n' "$key" "$key" "$text" "$group" "$((10#$key))"
        done
    done
}
# grow HIVE MIB: a script on standard input, and zeros after the last bin, up to so many MiB.
grow() {
    { cat; echo commit; } > "$dir/script"
    hivexsh -w -f "$dir/script" "$dir/$1"
    rm "$dir/script"
    [ "$(stat -c %s "$dir/$1")" -le $(($2 << 20)) ] || { echo "large-hives.sh: $1 became larger than $2 MiB" >&2; exit 1; }
    truncate -s "$2M" "$dir/$1"
}

{
    printf 'cd \\ControlSet001\nadd Enum\n'
    groups 'ControlSet001\Enum' 73 120
    groups 'ControlSet001\Services' 4 300
} | grow SYSTEM 24
{
    printf 'cd \\\nadd Classes\n'
    groups Classes 310 120
    groups Microsoft 20 200
    groups 'Microsoft\Windows\CurrentVersion' 20 200
} | grow SOFTWARE 100
