#!/bin/bash
# Unpacks the etcd of Debian's current stable suite into a folder, beside the machine's own older one.
#   bash etcd35.sh FOLDER     afterwards FOLDER/etcd is the server
set -euo pipefail
folder=$(realpath -m "${1:?a folder}")
[ -x "$folder/etcd" ] && exit 0
# The mirror that this machine's apt uses already.
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | sort -u | sed -n 1p)
home="$folder/apt"
mkdir -p "$home"/{lists/partial,archives/partial,state}
: > "$home/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror stable main" > "$home/sources.list"
own=(-o "Dir::State=$home/state" -o "Dir::State::lists=$home/lists" -o "Dir::State::status=$home/status"
     -o "Dir::Cache::archives=$home/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
     -o "Dir::Etc::sourcelist=$home/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root
     -o Acquire::Languages=none)
apt-get "${own[@]}" update -qq
(cd "$home" && apt-get "${own[@]}" download -qq etcd-server)
dpkg -x "$home"/etcd-server_*.deb "$home/root"
mv "$home/root/usr/bin/etcd" "$folder/etcd"
rm -rf "$home"
"$folder/etcd" --version
