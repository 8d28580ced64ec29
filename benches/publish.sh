#!/bin/bash
# benches/publish.sh DIR [RUNS]: `sealroot package --push` against the usual recipe and the best public tools, from one
# disk to one registry.
#
# DIR keeps the disk (8 GiB sparse, made once by mkdisk.sh) and holds all that is written meanwhile.
# Each way is run RUNS times (default 3), in turn, into an empty docker-registry over TLS on loopback
# that is started for it; the median is shown. The registry shares the machine, its CPU time is not counted.
# SEALROOT=PATH is a binary to use instead of a release build. Needs root, as mkdisk.sh does.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=${1:?usage: publish.sh DIR [RUNS]} runs=${2:-3}
die() { echo "publish.sh: $*" >&2; exit 1; }
for tool in qemu-img umoci skopeo docker-registry htpasswd openssl curl python3 /usr/bin/time; do
    command -v $tool >/dev/null || die "$tool is missing: run tests/run.sh, and install the package time"
done
[ "$(id -u)" = 0 ] || die 'the layer made with umoci belongs to 107:107, which takes root'

if [ -z "${SEALROOT:-}" ]; then
    cargo build --release --locked --manifest-path "$top/Cargo.toml"
    SEALROOT=${CARGO_TARGET_DIR:-$top/target}/release/sealroot
fi
"$top/benches/mkdisk.sh" "$dir"
disk=$(realpath "$dir/root-8g.raw")

work=$(realpath "$(mktemp -d -p "$dir")")
registry=''
stop_registry() { [ -z "$registry" ] || { kill "$registry"; wait "$registry"; } 2>/dev/null || true; registry=''; }
trap 'stop_registry; rm -rf "$work"' EXIT

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
host=127.0.0.1:$port
certs=$work/certs
mkdir "$certs" "$work/docker"
openssl req -x509 -newkey rsa:2048 -sha256 -nodes -days 2 -keyout "$certs/ca.key" -out "$certs/ca.crt" -subj '/CN=bench CA' \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>/dev/null
openssl req -newkey rsa:2048 -nodes -keyout "$certs/server.key" -out "$certs/server.csr" -subj /CN=localhost 2>/dev/null
openssl x509 -req -in "$certs/server.csr" -CA "$certs/ca.crt" -CAkey "$certs/ca.key" -CAcreateserial -days 2 -sha256 \
    -out "$certs/server.crt" -extfile <(printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n') 2>/dev/null
htpasswd -Bbn pusher bench > "$work/htpasswd" # a password for this run on loopback
printf '{"auths": {"%s": {"auth": "%s"}}}\n' "$host" "$(printf pusher:bench | base64)" > "$work/docker/config.json"
mkdir "$work/trust"
cp "$certs/ca.crt" "$work/trust/"
cat > "$work/registry.yml" <<Y
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $work/storage}}
auth: {htpasswd: {realm: bench, path: $work/htpasswd}}
http: {addr: $host, secret: bench, tls: {certificate: $certs/server.crt, key: $certs/server.key}}
Y
start_registry() {
    rm -rf "$work/storage"
    docker-registry serve "$work/registry.yml" >"$work/registry.log" 2>&1 &
    registry=$!
    for _ in $(seq 100); do
        curl --silent --output /dev/null --cacert "$certs/ca.crt" "https://$host/v2/" && return
        kill -0 "$registry" 2>/dev/null || break
        sleep 0.1
    done
    die "docker-registry did not start: $(cat "$work/registry.log")"
}

export DOCKER_CONFIG=$work/docker
cat > "$work/tools" <<'S' # DISK REF TRUST
set -euo pipefail
mkdir disk
qemu-img convert -c -O qcow2 -o compression_type=zstd -m 16 -W -f raw "$1" disk/disk.qcow2
chown -R 107:107 disk
chmod 0440 disk/disk.qcow2
umoci init --layout image
umoci new --image image:root
umoci insert --image image:root disk /disk
skopeo copy --quiet --dest-cert-dir "$3" --authfile "$DOCKER_CONFIG/config.json" oci:image:root "docker://$2"
S
cat > "$work/layout.py" <<'S' # FOLDER DIFF_ID: makes FOLDER, with layer.tar.gz in it, an OCI layout
import hashlib, json, os, sys

folder, diff_id = sys.argv[1:]
blobs = f"{folder}/blobs/sha256"
os.makedirs(blobs)
with open(f"{folder}/layer.tar.gz", "rb") as layer:
    layer_digest = hashlib.file_digest(layer, "sha256").hexdigest()
os.rename(f"{folder}/layer.tar.gz", f"{blobs}/{layer_digest}")

def blob(kind, content):
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    open(f"{blobs}/{digest}", "wb").write(data)
    return {"mediaType": f"application/vnd.oci.image.{kind}.v1+json", "digest": f"sha256:{digest}", "size": len(data)}

size = os.path.getsize(f"{blobs}/{layer_digest}")
layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": f"sha256:{layer_digest}", "size": size}
config = blob("config", {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff_id}"]}})
manifest = blob("manifest", {"schemaVersion": 2, "config": config, "layers": [layer]})
manifest["annotations"] = {"org.opencontainers.image.ref.name": "root"}
json.dump({"schemaVersion": 2, "manifests": [manifest]}, open(f"{folder}/index.json", "w"))
json.dump({"imageLayoutVersion": "1.0.0"}, open(f"{folder}/oci-layout", "w"))
S
cat > "$work/recipe" <<'S' # DISK REF TRUST
set -euo pipefail
mkdir disk image
qemu-img convert -O qcow2 -f raw "$1" disk/disk.qcow2
qemu-img check -q disk/disk.qcow2
tar --owner=107 --group=107 --mtime=@0 -cf - disk | tee >(sha256sum > diff_id) | gzip -1 > image/layer.tar.gz
python3 ../layout.py image "$(cut -d' ' -f1 diff_id)"
skopeo copy --quiet --dest-cert-dir "$3" --authfile "$DOCKER_CONFIG/config.json" oci:image:root "docker://$2"
S
cat > "$work/sealroot" <<'S' # DISK REF TRUST SEALROOT
set -euo pipefail
"$4" package --disk "$1" --push "$2" --ca "$3/ca.crt"
S

# once WAY: append `wall user+system MiB-of-memory MiB-written MiB-of-layer` to $work/WAY.times.
once() {
    local way=$1 ref=$host/$1/root:bench scratch=$work/scratch layer
    start_registry
    rm -rf "$scratch"
    mkdir "$scratch"
    sync
    (cd "$scratch" && TMPDIR=$scratch /usr/bin/time -o "$work/time" -f '%e %U %S %M %O' \
        bash "$work/$way" "$disk" "$ref" "$work/trust" "$SEALROOT" >"$work/$way.log" 2>&1) || die "$way failed: $(cat "$work/$way.log")"
    layer=$(skopeo inspect --raw --cert-dir "$work/trust" --authfile "$DOCKER_CONFIG/config.json" "docker://$ref" |
        python3 -c 'import json, sys; print(sum(layer["size"] for layer in json.load(sys.stdin)["layers"]))')
    stop_registry
    awk -v layer="$layer" '{ printf "%.2f %.2f %.0f %.0f %.1f\n", $1, $2 + $3, $4 / 1024, $5 / 2048, layer / 1048576 }' \
        "$work/time" >> "$work/$way.times"
    printf '%s: %s\n' "$way" "$(tail -1 "$work/$way.times")" >&2
}

ways=(recipe tools sealroot)
[ "${ONLY:-}" = '' ] || ways=("$ONLY")
cat "$disk" >/dev/null # both find the disk in the page cache as far as it fits
for _ in $(seq "$runs"); do
    for way in "${ways[@]}"; do once "$way"; done
done

python3 - "$work" "$runs" "${ways[@]}" <<'P'
import statistics, sys

work, runs, ways = sys.argv[1], sys.argv[2], sys.argv[3:]
columns = ["wall s", "CPU s", "memory MiB", "written MiB", "layer MiB"]
medians = {}
print(f"\nmedian of {runs}\n{'':10}" + "".join(f"{column:>13}" for column in columns))
for way in ways:
    rows = [[float(cell) for cell in line.split()] for line in open(f"{work}/{way}.times")]
    medians[way] = [statistics.median(column) for column in zip(*rows)]
    print(f"{way:10}" + "".join(f"{value:13.1f}" for value in medians[way]))
if len(ways) == 3:
    for way in ways[:2]:
        ratios = [a / b if b else float("inf") for a, b in zip(medians[way], medians["sealroot"])]
        print(f"{way + '/ours':11}" + "".join(f"{ratio:13.2f}" for ratio in ratios))
P
