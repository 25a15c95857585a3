#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-package.sh BUILD: the packages of a build folder (prefix /usr), made twice (the same bytes), then installed, upgraded, removed and purged by apt and dpkg
# under a real systemd, PID 1 of namespaces over an overlay of this machine, with programs running that have the library: nobody notices, and nothing is
# left. Needs root, mount, PID and cgroup namespaces, systemd and dpkg-dev. Packages are left in BUILD/packages.
set -u
build=$(realpath "$1")
skip() { echo "skipped: $*"; exit 77; }

# ---- outside ----
if [ "${2:-}" = "" ]; then
	source=$(realpath "$(dirname "$0")/../..")
	[ "$(id -u)" = 0 ] && unshare --mount --pid --uts --ipc --cgroup --fork true 2>/dev/null || skip "needs root and namespaces"
	command -v dpkg-shlibdeps >/dev/null || skip "dpkg-dev is not installed"
	meson introspect "$build" --buildoptions | grep -q '"value": "/usr"' || skip "the build folder is not for packages (-Dprefix=/usr)"
	[ -e /lib/systemd/systemd ] || skip "no systemd"
	"$source/tests/built.py" "$build" shim/libgpuprobe-shim.so tests/sim/{libcuda.so.1,vec_add_driver} docs/counter.bpf.o daemon/translator/gpuprobe-program-worker || exit
	work=$(mktemp -d /var/tmp/test-package.XXXXXX)
	mkdir "$work/out" "$work/test"
	rm -rf "$build/packages"
	echo "packages, twice"
	"$source/systemd/debian/build" "$build" "$build/packages" || exit 1
	compiler=()
	[ ! -e "$build/daemon/worker/libgpuprobe-ptxcompiler.so" ] || compiler=(--with-ptxcompiler=uncompressed)
	"$source/systemd/debian/build" "$build" "$work/again" "${compiler[@]}" >/dev/null || exit 1
	(cd "$build/packages" && sha256sum -- *.deb) >"$work/sums"
	(cd "$work/again" && sha256sum --quiet -c "$work/sums") || { echo "FAILED: the second time they are others"; exit 1; }
	cp -r "$build/packages" "$work/test/old"
	cp "$work"/again/gpuprobed-ptxcompiler_*.deb "$work/test" 2>/dev/null
	mkdir "$work/test/new" # the same as a later version, packed in a hurry
	for package in "$build"/packages/*.deb; do
		dpkg-deb -R "$package" "$work/unpacked" && sed -i -E '/^(Version|Recommends):/s/[0-9][0-9.]+/9.9/g' "$work/unpacked/DEBIAN/control" &&
			dpkg-deb --root-owner-group -Znone --build "$work/unpacked" "$work/test/new" >/dev/null || exit 1
		rm -rf "$work/unpacked"
	done
	cp "$build"/tests/sim/{libcuda.so.1,vec_add_driver} "$0" "$work/test"
	timeout -k 10 500 unshare --mount --propagation private --pid --uts --ipc --cgroup --fork --kill-child "$0" "$build" boot "$work" >"$work/console" 2>&1 </dev/null
	if [ ! -e "$work/out/began" ]; then
		reason=$(tail -3 "$work/console")
		rm -rf "$work"
		skip "systemd does not start here: $reason"
	fi
	cat "$work/out/log"
	[ "$(cat "$work/out/result" 2>/dev/null)" = ok ] && { rm -rf "$work"; exit 0; }
	echo "FAILED; the rest is in $work"
	exit 1
fi

# ---- in the namespaces: makes the root and becomes systemd ----
if [ "$2" = boot ]; then
	set -e
	work=$3 root=$3/root
	mkdir "$work/up" "$root"
	mount -t tmpfs tmpfs "$work/up"
	mkdir "$work"/up/{u,w}
	mount -t overlay overlay -o "lowerdir=/,upperdir=$work/up/u,workdir=$work/up/w" "$root"
	mount -t proc proc "$root/proc"
	mount -t sysfs -o ro sysfs "$root/sys"
	mount -t tmpfs tmpfs "$root/run"
	mount -t tmpfs tmpfs "$root/tmp"
	mount --rbind /dev "$root/dev"
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
	mkdir -p "$root/opt/test"
	cp -r "$work/test/." "$root/opt/test"
	mkdir "$root/opt/test/out"
	mount --bind "$work/out" "$root/opt/test/out"
	rm -rf "$root"/var/{lib,cache}/gpuprobed "$root"/etc/{gpuprobe,gpuprobed} # of other tests
	rm -rf "$root"/etc/systemd/system/*.wants "$root/usr/sbin/policy-rc.d" "$root/etc/ld.so.preload" "$root/var/lib/man-db/auto-update" # no index of manuals each time
	cat >"$root/etc/systemd/system/driver.service" <<-END
		[Unit]
		DefaultDependencies=no
		After=systemd-journald.service
		[Service]
		Type=oneshot
		ExecStart=/opt/test/$(basename "$0") /opt/test inside
		ExecStopPost=/bin/systemctl --force --force poweroff
		StandardOutput=append:/opt/test/out/log
		StandardError=inherit
		TimeoutStartSec=450
	END
	printf '[Unit]\nDefaultDependencies=no\nWants=systemd-journald.service driver.service\n' >"$root/etc/systemd/system/t.target"
	cd "$root"
	pivot_root . mnt
	umount -l mnt
	cd /
	exec /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		/lib/systemd/systemd --system --unit=t.target --log-target=console --log-level=notice
fi

# ---- in that system ----
touch /opt/test/out/began
export DEBIAN_FRONTEND=noninteractive HOME=/root LC_ALL=C.UTF-8
log=/opt/test/out/apt
all=(gpuprobed gpuprobectl libgpuprobe-shim gpuprobe-dev)
fail() {
	echo "FAILED: $*"
	tail -20 "$log"
	journalctl --no-pager -u gpuprobed.service | tail -20
	exit 1
}
quietly() { "$@" >>"$log" 2>&1 || fail "$*"; }
apt() { quietly apt-get -y -q --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "$@"; }
active() { systemctl is-active -q gpuprobed.service; }
enabled() { systemctl is-enabled gpuprobed.service gpuprobed.socket gpuprobed-shim.socket 2>/dev/null | sort -u; }
# what there is on the machine, without what dpkg, apt, ldconfig and others keep of their own work
files() {
	find /etc /usr /lib /var/lib /var/cache /var/log /run/gpuprobe -xdev \( -path /var/lib/dpkg -o -path /var/lib/apt -o -path '/var/lib/systemd' -o -path /var/cache \
		-o -path /var/log -o -path /run/systemd \) -prune -o -print 2>/dev/null | grep -Ev '^/etc/(passwd-|group-|shadow-|gshadow-|subuid-?|subgid-?|\.pwd\.lock|ld\.so\.cache)$' | sort
	ls -d /var/cache/gpuprobed 2>/dev/null
	cut -d: -f1 /etc/passwd /etc/group
}
application=(env LD_LIBRARY_PATH=/opt/test /opt/test/vec_add_driver --threads 4096 --launches 3)
shim=$(cd /opt/test/old && dpkg-deb -c libgpuprobe-shim_*.deb | sed -n 's,.* \.\(/.*/libgpuprobe-shim.so\)$,\1,p')
examples=/usr/share/gpuprobe/examples
sleeper() { sleep 1000 & sleepers+=($!); until grep -q "$shim" "/proc/$!/maps"; do sleep 0.05; done; }
sleepers=()
quietly systemctl start sysinit.target # tmpfiles of others, which our units would bring as well
files >/run/before

echo "install"
apt install /opt/test/old/*.deb
[ "$(enabled)" = disabled ] || fail "it is enabled: $(enabled)"
active && fail "it runs"
[ -e /etc/ld.so.preload ] && fail "the preload is there"
getent group gpuprobe >/dev/null || fail "no group"
gpuprobectl doctor --only='preload.library' >/dev/null || fail "$(gpuprobectl doctor --only='preload.*')"
gpuprobectl doctor --only='service.units' | grep -q ^ok || fail "$(gpuprobectl doctor --only='service.*')"
gpuprobed --check-config >/run/defaults || fail "the file in /etc is wrong"
: >/run/empty && cmp /run/defaults <(gpuprobed --config=/run/empty --check-config) || fail "the file in /etc changes something"
sed -i 's/^#deadline-ms = .*/deadline-ms = 3000/' /etc/gpuprobed/gpuprobed.conf
man -w gpuprobectl >/dev/null 2>&1 || [ -e /usr/share/man/man1/gpuprobectl.1.gz ] || fail "no manual"

echo "use"
quietly systemctl enable --now gpuprobed
quietly gpuprobectl shim enable
gpuprobectl doctor --only='[ds][ao]*' --json >/opt/test/out/doctor || fail "doctor: $(gpuprobectl doctor --only='[ds][ao]*')"
[ "$(gpuprobectl attach $examples/counter.bpf.o)" = 1 ] || fail attach
"${application[@]}" || fail "the program"
[ "$(gpuprobectl map dump counter)" = "0: 12288" ] || fail "$(gpuprobectl map dump counter)"
sleeper

echo "upgrade"
main=$(systemctl show -P MainPID gpuprobed)
inode=$(stat -c %i "$shim")
"${application[@]}" --launches 100 --sleep-ms 40 & # launches while the library, the daemon and all are replaced
running=$!
until [ "$(gpuprobectl map dump counter)" != "0: 12288" ]; do kill -0 $running || fail "it is not probed"; sleep 0.05; done
(while [ ! -e /run/upgraded ]; do /bin/true; done) >/run/complaints 2>&1 & # programs that start meanwhile
starting=$!
quietly dpkg --force-unsafe-io -i /opt/test/new/*.deb
touch /run/upgraded
wait $starting
[ ! -s /run/complaints ] || fail "programs that start during an upgrade complain: $(head -3 /run/complaints)"
[ "$(stat -c %i "$shim")" != "$inode" ] || fail "the library is overwritten, with programs that have it"
wait $running || fail "a program that ran meanwhile"
counted=$((12288 + 409600))
[ "$(enabled)" = enabled ] || fail "after an upgrade: $(enabled)"
active || fail "it does not run after an upgrade"
[ "$(systemctl show -P MainPID gpuprobed)" != "$main" ] || fail "the old daemon runs"
[ "$(cat /etc/ld.so.preload)" = "$(realpath "$shim")" ] || fail "ld.so.preload: $(cat /etc/ld.so.preload)"
[ "$(gpuprobectl map dump counter)" = "0: $counted" ] || fail "what was counted is lost: $(gpuprobectl map dump counter 2>&1), not $counted"
gpuprobed --check-config | grep -q "^deadline-ms = 3000" || fail "what was configured is lost"
sleeper
"${application[@]}" || fail "the program after an upgrade"
[ "$(gpuprobectl map dump counter)" = "0: $((counted + 12288))" ] || fail "after an upgrade: $(gpuprobectl map dump counter 2>&1)"
quietly systemctl disable --now gpuprobed gpuprobed.socket gpuprobed-shim.socket
quietly dpkg --force-unsafe-io -i /opt/test/old/*.deb
[ "$(enabled)" = disabled ] || fail "after another one: $(enabled)"
active && fail "it runs after another one"
quietly systemctl enable --now gpuprobed

compiler() { # of the daemon that runs
	for _ in $(seq 100); do gpuprobectl status | grep -q "^compiler: unknown" || break; sleep 0.1; done
	gpuprobectl status | grep "^compiler: "
}
if [ -e /opt/test/gpuprobed-ptxcompiler_*.deb ]; then
	echo "with NVIDIA's compiler, and without"
	compiler | grep -q nvPTXCompiler && fail "it is there without its package: $(compiler)"
	quietly dpkg --force-unsafe-io -i /opt/test/gpuprobed-ptxcompiler_*.deb
	compiler | grep -q nvPTXCompiler || fail "with the package: $(compiler)"
	quietly dpkg --force-unsafe-io -P gpuprobed-ptxcompiler
	compiler | grep -q nvPTXCompiler && fail "without the package again: $(compiler)"
fi

echo "remove: first out of ld.so.preload"
printf '# /x/libgpuprobe-shim.so\n' >>/etc/ld.so.preload
kept=$(tail -1 /etc/ld.so.preload)
mount --bind /etc/ld.so.preload /etc/ld.so.preload
dpkg -r libgpuprobe-shim >>"$log" 2>&1 && fail "removed, although ld.so.preload could not be changed"
umount /etc/ld.so.preload
[ -e "$shim" ] || fail "the library is gone, and ld.so.preload names it"
apt remove libgpuprobe-shim
[ -e "$shim" ] && fail "the library is there"
[ "$(cat /etc/ld.so.preload)" = "$kept" ] || fail "ld.so.preload: $(cat /etc/ld.so.preload)"
[ -z "$(true 2>&1)" ] || fail "$(true 2>&1)"
[ -z "$(/bin/true 2>&1)" ] || fail "$(/bin/true 2>&1)"
for process in "${sleepers[@]}"; do kill -0 "$process" || fail "a program that had the library has ended"; done
kill -TERM "${sleepers[@]}"

echo "remove: without gpuprobectl"
check_edit() { # BEFORE AFTER: of ld.so.preload, when the package goes
	printf '%b' "$1" >/etc/ld.so.preload
	chmod 640 /etc/ld.so.preload
	quietly /var/lib/dpkg/info/libgpuprobe-shim.prerm remove
	[ "$(cat /etc/ld.so.preload; echo x)" = "$(printf '%b' "$2"; echo x)" ] || fail "of '$1' is left '$(cat /etc/ld.so.preload)'"
	[ ! -e /etc/ld.so.preload ] || [ "$(stat -c %a /etc/ld.so.preload)" = 640 ] || fail "its mode is another one"
	rm -f /etc/ld.so.preload
} 2>>"$log" # ld.so's complaints: not all of these are there
quietly dpkg --force-unsafe-io -r gpuprobectl
quietly dpkg --force-unsafe-io -i /opt/test/old/libgpuprobe-shim_*.deb
check_edit "$shim\n" ""
check_edit "$shim $shim\n" ""
check_edit "/lib/x.so\n/a/libgpuprobe-shim.so\n# $shim\n" "/lib/x.so\n\n# $shim\n"
check_edit "/lib/x.so:$shim:/lib/y.so\t$shim# no" "/lib/x.so::/lib/y.so\t# no"
check_edit "# x\n#  $shim\n# y #$shim" "# x\n#  \n# y #"
check_edit "/lib/notlibgpuprobe-shim.so\n/lib/libgpuprobe-shim.so.1\n" "/lib/notlibgpuprobe-shim.so\n/lib/libgpuprobe-shim.so.1\n"
printf '%s\n' "$shim" >/etc/ld.so.preload
quietly dpkg --force-unsafe-io -r libgpuprobe-shim
[ -e /etc/ld.so.preload ] && fail "ld.so.preload: $(cat /etc/ld.so.preload)"

echo "remove and purge the rest"
active || fail "it has stopped too early"
apt remove gpuprobed
[ -e /run/gpuprobe/io.gpuprobe.control ] && fail "the socket is there"
systemctl is-active -q gpuprobed.socket && fail "systemd listens"
[ "$(stat -c %U /var/lib/gpuprobed)" = gpuprobe ] || fail "its state is gone before a purge"
mkdir -p /etc/gpuprobe/hooks.d /etc/gpuprobe/profiles
touch /etc/gpuprobe/hooks.d/mine.json /etc/gpuprobe/profiles/mine.conf
apt purge gpuprobed
[ "$(cd /etc/gpuprobe && find . -type f)" = ./profiles/mine.conf ] || fail "of /etc/gpuprobe is left: $(find /etc/gpuprobe)"
quietly dpkg --force-unsafe-io --purge "${all[@]}" # apt does not know all of their names any more
files >/run/after
diff /run/before /run/after >/opt/test/out/left || fail "left behind: $(cat /opt/test/out/left)"
dpkg-query -W "${all[@]}" 2>/dev/null | grep -q . && fail "dpkg knows of them: $(dpkg-query -W "${all[@]}")"
echo ok >/opt/test/out/result
