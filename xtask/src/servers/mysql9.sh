#!/bin/bash
# Unpacks Oracle's MySQL server, from Debian's development suite, into a folder, with the C library and the
# loader that it needs. Nothing of this machine is changed.
#   bash mysql9.sh FOLDER     afterwards FOLDER/mysqld is the server
set -euo pipefail
folder=$(realpath -m "${1:?a folder}")
[ -x "$folder/mysqld" ] && exit 0
# The mirror that this machine's apt uses already.
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | sort -u | sed -n 1p)
home="$folder/apt" root="$folder/root"
mkdir -p "$home"/{lists/partial,archives/partial,state} "$root"
: > "$home/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" > "$home/sources.list"
cat > "$home/apt.conf" <<CONF
Dir::State "$home/state";
Dir::State::lists "$home/lists";
Dir::State::status "$home/status";
Dir::Cache::archives "$home/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "$home/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
CONF
export APT_CONFIG="$home/apt.conf" DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --download-only mysql-server-core
for package in "$home"/archives/*.deb; do
    # Only helper scripts want Perl.
    case ${package##*/} in perl* | libperl* | libgdbm* | libdb5*) continue ;; esac
    dpkg -x "$package" "$root"
done
libraries="$root/usr/lib/$(uname -m)-linux-gnu"
loader=$(find "$libraries" -maxdepth 1 -name 'ld-linux*' | sed -n 1p)
cat > "$folder/mysqld" <<RUN
#!/bin/sh
exec "$loader" --library-path "$libraries:$root/usr/lib/mysql/private" "$root/usr/sbin/mysqld" \\
    --no-defaults --basedir="$root/usr" --lc-messages-dir="$root/usr/share/mysql" \\
    --character-sets-dir="$root/usr/share/mysql/charsets" --plugin-dir="$root/usr/lib/mysql/plugin" \\
    --secure-file-priv=NULL --mysqlx=OFF "\$@"
RUN
chmod +x "$folder/mysqld"
rm -rf "$home"
"$folder/mysqld" --version
