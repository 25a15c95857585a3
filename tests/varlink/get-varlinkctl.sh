#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# get-varlinkctl.sh DIR: puts varlinkctl of Debian 13 in DIR, with its libraries and loader, and a command
# DIR/varlinkctl that runs it with them. Nothing outside of DIR is changed. Exit status 77: not to be had here.
set -eu

[ $# -eq 1 ] || { echo "usage: get-varlinkctl.sh DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)

skip() {
	echo "get-varlinkctl.sh: $*" >&2
	exit 77
}

exec 9>"$dir/lock" # two tests may want it at once
flock 9
[ -x "$dir/varlinkctl" ] && exit 0
if command -v varlinkctl >/dev/null; then
	ln -sf "$(command -v varlinkctl)" "$dir/varlinkctl"
	exit 0
fi
command -v apt-get >/dev/null || skip "no apt-get"
command -v dpkg-deb >/dev/null || skip "no dpkg-deb"
case $(dpkg --print-architecture) in
amd64) loader=lib64/ld-linux-x86-64.so.2 triplet=x86_64-linux-gnu ;;
arm64) loader=lib/ld-linux-aarch64.so.1 triplet=aarch64-linux-gnu ;;
*) skip "not for this architecture" ;;
esac

apt=$dir/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts" "$apt/debs"
: >"$apt/status"
cat >"$apt/trixie.sources" <<-END
	Types: deb
	URIs: ${DEBIAN_MIRROR:-http://deb.debian.org/debian}
	Suites: trixie
	Components: main
	Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
get() {
	apt-get -qq -o Dir::Etc::sourcelist="$apt/trixie.sources" -o Dir::Etc::sourceparts="$apt/parts" \
		-o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
		-o Debug::NoLocking=true -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages=none "$@"
}
get update >"$apt/log" 2>&1 || skip "no list of Debian 13 packages: $(tail -n 1 "$apt/log")"
# with an empty status, the dependencies of systemd are all that would be installed
packages=$(get -s -o APT::Install-Recommends=false install systemd 2>"$apt/log" | sed -n 's/^Inst \([^ ]*\).*/\1/p')
[ -n "$packages" ] || skip "Debian 13 has no installable systemd: $(tail -n 1 "$apt/log")"
libraries=
for package in $packages; do
	case $package in
	systemd | lib*) libraries="$libraries $package" ;;
	esac
done
# shellcheck disable=SC2086
(cd "$apt/debs" && get download $libraries >"$apt/log" 2>&1) || skip "download failed: $(tail -n 1 "$apt/log")"
for deb in "$apt"/debs/*.deb; do
	dpkg-deb -x "$deb" "$dir/root"
done
rm -rf "$apt"

libs=$dir/root/usr/lib/$triplet
start=$dir/root/usr/$loader
[ -x "$start" ] || start=$dir/root/$loader
[ -x "$start" ] || start=$libs/${loader##*/}
cat >"$dir/varlinkctl" <<-END
	#!/bin/sh
	exec "$start" --library-path "$libs:$libs/systemd" "$dir/root/usr/bin/varlinkctl" "\$@"
END
chmod +x "$dir/varlinkctl"
"$dir/varlinkctl" --version >"$dir/version" 2>&1 || {
	rm "$dir/varlinkctl"
	skip "varlinkctl does not start: $(head -n 1 "$dir/version")"
}
