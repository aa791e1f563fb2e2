#!/bin/sh
# Builds an API server of Kubernetes and etcd into a folder, from the modules that Go verifies: kubernetes.sh KUBERNETES ETCD FOLDER.
# Their go.mod replaces parts by folders of their repositories, which the modules lack. This takes the released modules instead.
set -eu
kubernetes=$1 etcd=$2 folder=$(mkdir -p "$3" && cd "$3" && pwd)
export GOWORK=off GOFLAGS="-trimpath -mod=mod" CGO_ENABLED=0
source=$(mktemp -d)
trap 'chmod -R u+w "$source" && rm -rf "$source"' EXIT

# fetch MODULE@VERSION copies a module to a folder that can be written.
fetch() {
    cp -R "$(cd "$source" && go mod download -json "$1" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')" "$source/$2"
    chmod -R u+w "$source/$2"
}

if [ ! -x "$folder/kube-apiserver" ]; then
    fetch "k8s.io/kubernetes@$kubernetes" kubernetes
    cd "$source/kubernetes"
    rm -rf vendor go.work go.work.sum
    for module in $(sed -n 's|^	\(k8s.io/[a-z-]*\) => ./staging.*|\1|p' go.mod); do
        go mod edit -replace "$module=$module@v0.${kubernetes#v1.}"
    done
    go build -ldflags "-X k8s.io/component-base/version.gitVersion=$kubernetes" -o "$folder/kube-apiserver" ./cmd/kube-apiserver
fi
if [ ! -x "$folder/etcd" ]; then
    fetch "go.etcd.io/etcd/server/v3@$etcd" etcd
    cd "$source/etcd"
    for module in $(sed -n 's|^	\(go.etcd.io/[a-z/0-9]*\) => \.\./.*|\1|p' go.mod); do
        go mod edit -replace "$module=$module@$etcd"
    done
    for module in $(sed -n 's|^replace \(go.etcd.io/[a-z/0-9]*\) => ./FORBIDDEN_DEPENDENCY|\1|p' go.mod); do
        go mod edit -dropreplace "$module"
    done
    go build -o "$folder/etcd" .
fi
