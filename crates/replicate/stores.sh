#!/bin/sh
# Real stores: each is installed from its package registry below target/stores, started on this machine, and put to the tests of
# crates/replicate/src/store/objects. Some have to be refused; through the others goes a disaster drill, where `make dist` has made the
# programs. Needs go, npm, cargo and python3. Names of stores choose among them.
set -eu
cd "$(dirname "$0")/../.."
home=$PWD/target/stores
port=7060
mkdir -p "$home"

go_install() { [ -x "$home/bin/$1" ] || GOBIN=$home/bin go install "$2"; }
npm_install() { [ -d "$home/npm/node_modules/$1" ] || npm install --silent --no-audit --no-fund --prefix "$home/npm" "$1@$2"; }

# Waits until something listens, for half a minute at most.
await() {
    for _ in $(seq 300); do
        if python3 -c "import socket; socket.create_connection(('127.0.0.1', $1), 1).close()" 2>/dev/null; then return 0; fi
        sleep 0.1
    done
    echo "stores: nothing listens on port $1" >&2
    return 1
}

# fit or unfit, the URL, then the server and its arguments.
try() {
    verdict=$1 url=$2
    shift 2
    "$@" >"$home/$name.log" 2>&1 &
    server=$!
    # `trap` ends it where this script is ended.
    trap 'kill $server 2>/dev/null' EXIT
    await "$port"
    if [ "$name" = azurite ]; then python3 crates/replicate/azure_container.py "$port" replica; fi
    fit=yes
    if [ "$verdict" = unfit ]; then fit=no; fi
    echo "---- $name: $verdict"
    PLAIT_STORE_URL=$url PLAIT_STORE_FIT=$fit cargo test --quiet --profile "${PROFILE:-dev}" --package plait-replicate --lib -- store::objects --nocapture
    if [ "$fit" = yes ] && [ -x dist/bin/plait-replicate ]; then URL=$url/drill sh examples/replication/drill.sh 3; fi
    kill "$server"
    wait "$server" 2>/dev/null || true
    trap - EXIT
}

for name in ${*:-versitygw gofakes3 azurite s3rver s3s-fs}; do
    port=$((port + 1))
    data=$home/data/$name
    rm -rf "$data"
    mkdir -p "$data/replica"
    export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ALLOW_HTTP=true AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=replica AWS_SECRET_ACCESS_KEY=not-a-secret
    case $name in
    versitygw)
        go_install versitygw github.com/versity/versitygw/cmd/versitygw@v1.8.0
        try fit s3://replica "$home/bin/versitygw" --access "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" \
            --port "127.0.0.1:$port" posix "$data"
        ;;
    gofakes3)
        go_install gofakes3 github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0
        try fit s3://replica "$home/bin/gofakes3" -host "127.0.0.1:$port" -backend mem -initialbucket replica
        ;;
    azurite)
        npm_install azurite 3.37.0
        export AZURE_STORAGE_USE_EMULATOR=true AZURITE_BLOB_STORAGE_URL=http://127.0.0.1:$port AZURE_ALLOW_HTTP=true
        try fit az://replica "$home/npm/node_modules/.bin/azurite-blob" --silent --skipApiVersionCheck --location "$data" \
            --blobHost 127.0.0.1 --blobPort "$port"
        ;;
    s3rver)
        npm_install s3rver 3.7.1
        export AWS_ACCESS_KEY_ID=S3RVER AWS_SECRET_ACCESS_KEY=S3RVER
        try unfit s3://replica "$home/npm/node_modules/.bin/s3rver" --directory "$data" --address 127.0.0.1 --port "$port" \
            --configure-bucket replica
        ;;
    s3s-fs)
        [ -x "$home/bin/s3s-fs" ] || cargo install --quiet --locked --root "$home" s3s-fs@0.14.1 --features binary
        try unfit s3://replica "$home/bin/s3s-fs" --access-key "$AWS_ACCESS_KEY_ID" --secret-key "$AWS_SECRET_ACCESS_KEY" \
            --host 127.0.0.1 --port "$port" "$data"
        ;;
    *)
        echo "stores: $name is none of versitygw gofakes3 azurite s3rver s3s-fs" >&2
        exit 2
        ;;
    esac
done
