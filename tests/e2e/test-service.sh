#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-service.sh BUILD: gpuprobed as a service of a real systemd, which is PID 1 of namespaces over an overlay of this machine: started by its
# socket, under all its restrictions; what it may and what it sees; a program of each user, also under a preload for the whole system; killed,
# hanging, stopped; programs that began before it. Needs root, mount, PID and cgroup namespaces, systemd, and a build folder with -Dprefix=/usr.
set -u
build=$(realpath "$1")

skip() { echo "skipped: $*"; exit 77; }

# ---- outside ----
if [ "${2:-}" = "" ]; then
	[ "$(id -u)" = 0 ] && unshare --mount --pid --uts --ipc --cgroup --fork true 2>/dev/null || skip "needs root and namespaces"
	[ -e /lib/systemd/systemd ] || skip "no systemd"
	meson introspect "$build" --buildoptions | grep -q '"value": "/usr"' || skip "the build folder is not for the system (-Dprefix=/usr)"
	"$(dirname "$0")/../built.py" "$build" shim/libgpuprobe-shim.so tests/sim/{libcuda.so.1,vec_add_driver,live_driver} docs/counter.bpf.o \
		daemon/translator/gpuprobe-program-worker || exit
	work=$(mktemp -d /var/tmp/test-service.XXXXXX)
	mkdir "$work/out"
	meson install -C "$build" --no-rebuild --quiet --destdir "$work/stage" >"$work/install" || { cat "$work/install"; echo "FAILED: meson install; the rest is in $work"; exit 1; }
	timeout -k 10 240 unshare --mount --propagation private --pid --uts --ipc --cgroup --fork --kill-child "$0" "$build" boot "$work" >"$work/console" 2>&1 </dev/null
	if [ ! -e "$work/out/began" ]; then
		[ "$(cat "$work/out/stage")" != files ] || { cat "$work/console"; echo "FAILED: the root was not made; the rest is in $work"; exit 1; }
		reason=$(tail -3 "$work/console")
		rm -rf "$work"
		skip "systemd does not start here: $reason"
	fi
	cat "$work/out/log"
	[ "$(cat "$work/out/result" 2>/dev/null)" = ok ] && { rm -rf "$work"; exit 0; }
	grep -a gpuprobe "$work/console" | tail -40
	echo "FAILED; the rest is in $work"
	exit 1
fi

# ---- in the namespaces: makes the root and becomes systemd ----
if [ "$2" = boot ]; then
	set -e
	work=$3 source=$(realpath "$(dirname "$0")/../..") root=$3/root
	echo mounts >"$work/out/stage"
	mkdir "$work/up" "$root"
	mount -t tmpfs tmpfs "$work/up"
	mkdir "$work"/up/{u,w}
	mount -t overlay overlay -o "lowerdir=/,upperdir=$work/up/u,workdir=$work/up/w" "$root"
	mount -t proc proc "$root/proc"
	mount -t sysfs -o ro sysfs "$root/sys"
	mount -t tmpfs tmpfs "$root/run"
	mount -t tmpfs tmpfs "$root/tmp" # its own: systemd empties /tmp
	mount --rbind /dev "$root/dev"
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
	mkdir -p "$root/opt/test/out"
	mount --bind "$work/out" "$root/opt/test/out"
	echo files >"$work/out/stage" # from here on a failure is not the machine's
	rm -rf "$root"/var/{lib,cache}/gpuprobed "$root"/etc/{gpuprobe,gpuprobed} # of other tests
	tar -C "$work/stage" -c . | tar -C "$root" -x --keep-directory-symlink
	service=$(cd "$work/stage" && find . -name gpuprobed.service)
	bin=$(dirname "$(sed -n 's/^ExecStart=\(\S*\).*/\1/p' "$root/$service")")
	shim=$("$build/ctl/gpuprobectl" shim status | sed -n 's/^installed: \([^:]*\):.*/\1/p')
	[ -e "$root$shim" ]
	install -D -m 755 -t "$root/opt/test" "$build"/tests/sim/{libcuda.so.1,vec_add_driver,live_driver} "$build/docs/counter.bpf.o" "$source"/systemd/*.conf "$0"
	rm -rf "$root"/etc/systemd/system/*.wants
	cat >"$root/etc/systemd/system/driver.service" <<-END
		[Unit]
		DefaultDependencies=no
		After=systemd-journald.service
		[Service]
		Type=oneshot
		Environment=BIN=$bin SHIM=$shim
		ExecStart=/opt/test/$(basename "$0") $build inside
		ExecStopPost=/bin/systemctl --force --force poweroff
		StandardOutput=file:/opt/test/out/log
		StandardError=inherit
		TimeoutStartSec=200
	END
	printf '[Unit]\nDefaultDependencies=no\nWants=systemd-journald.service driver.service\n' >"$root/etc/systemd/system/t.target"
	# a root of its own, not a chroot: else the service, in its mount namespace, sees other paths in /proc/PID/exe
	cd "$root"
	echo systemd >"$work/out/stage"
	pivot_root . mnt
	umount -l mnt
	cd /
	exec /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		/lib/systemd/systemd --system --unit=t.target --log-target=console --log-level=notice
fi

# ---- in that system ----
touch /opt/test/out/began
ctl=$BIN/gpuprobectl counter=/opt/test/counter.bpf.o
fail() {
	echo "FAILED: $*"
	systemctl status --no-pager -l gpuprobed.service
	journalctl --no-pager -u gpuprobed.service | tail -30
	exit 1
}
until_true() { # WHAT COMMAND...: within half a minute
	local what=$1
	shift
	for _ in $(seq 300); do "$@" && return; sleep 0.1; done
	fail "not within 30 s: $what"
}
property() { systemctl show -P "$1" gpuprobed.service; }
is() { [ "$(property "$1")" = "$2" ]; }
dumped() { "$ctl" map dump counter 2>&1 | grep -v "no process has carried the map"; }
application=(env LD_LIBRARY_PATH=/opt/test /opt/test/vec_add_driver --threads 4096 --launches 3)
shim=$(realpath "$SHIM")

systemd-sysusers gpuprobed.conf || fail sysusers
systemd-tmpfiles --create gpuprobed.conf || fail tmpfiles
systemctl start gpuprobed.socket gpuprobed-shim.socket || fail "the sockets"
is ActiveState inactive || fail "it runs already"

declare -A to from # the pipes of programs that do what they are told: tests/targets/live_driver.c
declare -A pid
say() { tell "$@"; }
tell() { # PROGRAM COMMAND
	local answer
	echo "$2" >&"${to[$1]}"
	read -r -t 30 answer <&"${from[$1]}" && [[ $answer == ok* ]] || fail "$1: $2: $answer"
}
begin() { # PROGRAM COMMAND...: as the user that $as says
	local command in out
	mkfifo "/run/$1.in" "/run/$1.out"
	"${as[@]}" env LD_PRELOAD="$shim" LD_LIBRARY_PATH=/opt/test /opt/test/live_driver <"/run/$1.in" >"/run/$1.out" &
	pid[$1]=$!
	exec {in}>"/run/$1.in" {out}<"/run/$1.out"
	to[$1]=$in from[$1]=$out
	read -r -t 30 answer <&"$out" && [ "$answer" = ok ] || fail "$1 does not begin: $answer"
	for command in "${@:2}"; do say "$1" "$command"; done
}
early_counts() { # WHAT: both are counted from now on, exactly once their kernels have twins, which a launch asks for
	local program before
	for program in module library; do
		before=$(dumped)
		probed() { say "$program" "launch 0 vectorAdd 1"; [ "$(dumped)" != "$before" ]; }
		until_true "$1: $program is probed; $("$ctl" why)" probed
		before=$(dumped)
		say "$program" "launch 0 vectorAdd 10"
		[ "$(dumped)" = "0: $((${before#0: } + 2560))" ] || fail "$1: $program: $(dumped) after $before; $("$ctl" why)"
	done
	say quiet "launch 0 vectorAdd 10"
}

echo "programs that begin before the daemon find a page on which nobody is interested"
[ "$(stat -c '%a %U %s' /run/gpuprobe/interest)" = "644 gpuprobe 4096" ] && cmp -n 4096 /run/gpuprobe/interest /dev/zero || fail "no page of zeros: $(ls -l /run/gpuprobe)"
as=()
begin module "load 0" "launch 0 vectorAdd 3"
begin library "load 0 library" "launch 0 vectorAdd 3"
# ends the program at a system call that looks for files or sockets: so launches of who is not meant make none, whatever the daemon does
as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
begin quiet "load 0" "launch 0 vectorAdd 1" "sandbox 1" "launch 0 vectorAdd 3"
for program in module library quiet; do
	grep -q " r--s .*/run/gpuprobe/interest$" "/proc/${pid[$program]}/maps" || fail "$program has not mapped it: $(cat "/proc/${pid[$program]}/maps")"
done
is ActiveState inactive || fail "they have started the daemon"

echo "it comes, goes, is killed, and comes again: they are probed, and counted"
attach_to_early() { "$ctl" attach "$counter" --uid=0 >/dev/null || fail "attach --uid"; }
systemctl start gpuprobed.service || fail start
page=$(stat -c %i /run/gpuprobe/interest)
say quiet "launch 0 vectorAdd 3" # before anything is attached
attach_to_early
early_counts "the first daemon"
"$ctl" trace --backend=shim -p "${pid[module]}" -d 60 >/run/traced 2>&1 &
tracing=$!
traced() { say module "launch 0 vectorAdd 1"; grep -q cuLaunchKernel /run/traced; }
until_true "a trace of a program that began before: $(cat /run/traced)" traced
kill -INT $tracing
wait $tracing || fail "trace: $(cat /run/traced)"
for round in 1 2; do
	systemctl stop gpuprobed.service || fail stop
	[ "$(ls /run/gpuprobe | tr '\n' ' ')" = "interest io.gpuprobe.control shim.sock " ] || fail "left behind: $(ls /run/gpuprobe)"
	for program in module library quiet; do say "$program" "launch 0 vectorAdd 3"; done
	systemctl start gpuprobed.service || fail start
	attach_to_early
	early_counts "start $round"
	main=$(property MainPID)
	kill -9 "$main"
	for program in module library quiet; do say "$program" "launch 0 vectorAdd 1"; done
	until_true "restarted" eval 'is ActiveState active && [ "$(property MainPID)" != "$main" ]'
	early_counts "kill -9, $round"
	systemctl restart gpuprobed.service || fail restart
	early_counts "restart $round"
	systemctl reset-failed gpuprobed.service
done
[ "$(stat -c %i /run/gpuprobe/interest)" = "$page" ] || fail "the page is another file"

echo "what is no page is replaced, with a line in the journal, and programs find the new one"
left() { # WHAT LINE: what lies there when the daemon starts, is said in one line; who mapped the page before is told
	systemctl start gpuprobed.service || fail "start with $1"
	journalctl --sync
	[ "$(journalctl -q --no-pager -o cat -u gpuprobed.service | grep -c "$2")" = 1 ] || fail "$1: $(journalctl --no-pager -u gpuprobed.service | tail -5)"
	attach_to_early
	early_counts "$1"
	systemctl stop gpuprobed.service || fail stop
}
systemctl stop gpuprobed.service || fail stop
printf '\3' | dd of=/run/gpuprobe/interest bs=1 seek=8 conv=notrunc status=none # its generation is odd
left "half a page" "/run/gpuprobe/interest: the daemon before ended while it wrote: written anew"
kill -9 "${pid[quiet]}" # it must not look for a file, and there is another one now
say() { [ "$1" = quiet ] || tell "$@"; }
dd if=/dev/zero of=/run/gpuprobe/interest bs=1 count=4 conv=notrunc status=none # no magic
left garbage "/run/gpuprobe/interest: not a page of a daemon: a new one takes its place"
for program in library module; do # the second has the pipe of the first, too
	eval "exec ${to[$program]}>&-"
	wait "${pid[$program]}" || fail "$program has ended with $?"
done

echo "start by socket"
"$ctl" status | grep -q "system daemon" || fail "$("$ctl" status 2>&1)"
is ActiveState active || fail "not active"
main=$(property MainPID)
status=$(cat "/proc/$main/status")
[ "$(stat -c %U "/proc/$main")" = gpuprobe ] || fail "its user is $(stat -c %U "/proc/$main")"
for set in CapInh CapPrm CapEff CapBnd CapAmb; do # CAP_PERFMON, CAP_BPF
	grep -q "^$set:.0*c000000000$" <<<"$status" || fail "$(grep ^Cap <<<"$status")"
done
grep -q "^NoNewPrivs:.1" <<<"$status" && grep -q "^Seccomp:.2" <<<"$status" || fail "$status"
devices=$(ls "/proc/$main/root/dev")
grep -q nvidia <<<"$devices" && fail "it sees $devices"
for path in /etc /usr /opt/test /var/lib /home; do
	nsenter -t "$main" -m -S "$(id -u gpuprobe)" -- test -w "$path" 2>/dev/null && fail "it may write to $path"
done
for path in /run/gpuprobe /var/lib/gpuprobed /var/cache/gpuprobed; do
	[ "$(stat -c %U "$path")" = gpuprobe ] || fail "$path belongs to $(stat -c %U "$path")"
done
modes=$(cd /run/gpuprobe && stat -c '%a %n' . interest io.gpuprobe.control lock shim.sock | tr '\n' ' ')
[ "$modes" = "755 . 644 interest 666 io.gpuprobe.control 600 lock 666 shim.sock " ] || fail "modes: $modes"

echo "attach, and count"
[ "$("$ctl" attach "$counter")" = 1 ] || fail "attach: $("$ctl" attach "$counter" 2>&1)"
"$ctl" status | grep -q "verifier: on" || fail "$("$ctl" status)"
LD_PRELOAD=$shim "${application[@]}" || fail "the program"
[ "$(dumped)" = "0: 12288" ] || fail "$(dumped); $("$ctl" why)"
LD_PRELOAD=$shim setpriv --reuid 65534 --regid 65534 --clear-groups "${application[@]}" || fail "another user's program"
[ "$(dumped)" = "0: 24576" ] || fail "$(dumped); $("$ctl" why)"
LD_LIBRARY_PATH=/opt/test "$ctl" shim enable >/dev/null || fail "shim enable"
"${application[@]}" || fail "the program under a preload for all"
[ "$(dumped)" = "0: 36864" ] || fail "$(dumped); $("$ctl" why)"
"$ctl" shim disable >/dev/null || fail "shim disable"
"${application[@]}" || fail "the program alone"
[ "$(dumped)" = "0: 36864" ] || fail "after shim disable: $(dumped)"
"$ctl" detach 1 || fail detach

echo "journal"
journalctl --sync
journalctl --update-catalog || fail "the catalog"
explained() { journalctl -q --no-pager -x -t gpuprobed "$@"; }
ids=($(sed -n 's/^-- //p' /usr/lib/systemd/catalog/gpuprobed.catalog)) # started, stops, attached, detached, crashed
explained "MESSAGE_ID=${ids[0]}" | grep -q "Subject: The GPU probe daemon is ready" || fail "start: $(explained)"
explained "MESSAGE_ID=${ids[2]}" GPUPROBE_PROGRAM=cuda__counter | grep -q "as attachment 1\." || fail "attach: $(explained)"
explained "MESSAGE_ID=${ids[3]}" GPUPROBE_ATTACHMENT=1 GPUPROBE_UID=0 | grep -q "has removed attachment 1\." || fail "detach: $(explained)"

echo "a worker is killed"
for process in /proc/[0-9]*; do
	[ "$(cat "$process/comm" 2>/dev/null)" = gpuprobe-image- ] && kill -9 "${process#/proc/}"
done
logged() { journalctl --sync; explained "MESSAGE_ID=${ids[4]}" "GPUPROBE_WORKER=$(realpath "$BIN/..")/bin/../libexec/gpuprobe/gpuprobe-image-worker" | grep -q "signal 9"; }
until_true "the journal knows of the worker" logged

echo "killed, crashed, restarted: the sockets stay, and the next one goes on with what is attached and counted"
[ "$("$ctl" attach "$counter")" = 2 ] || fail "attach again"
counted=0
counts_on() { # WHAT: numbers as they were, and a program adds to them
	[ "$(dumped)" = "0: $counted" ] || fail "after $1: $(dumped), not $counted; $("$ctl" why)"
	LD_PRELOAD=$shim "${application[@]}" || fail "the program after $1"
	counted=$((counted + 12288))
	[ "$(dumped)" = "0: $counted" ] || fail "counting after $1: $(dumped), not $counted; $("$ctl" why)"
}
goes_on() { # WHAT: the same in another process
	[ "$(property MainPID)" != "$main" ] || fail "$1: the same process"
	main=$(property MainPID)
	counts_on "$1"
}
main=0
goes_on attach
# all that while somebody connects to both sockets, as fast as he can
python3 - >/run/refused <<'END' &
import os, socket
tried = 0
while not os.path.exists("/run/enough"):
    for kind, name in (socket.SOCK_STREAM, "io.gpuprobe.control"), (socket.SOCK_SEQPACKET, "shim.sock"):
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.connect("/run/gpuprobe/" + name)
            tried += 1
print("all of them" if tried > 1000 else f"only {tried}")
END
connecting=$!
for round in 1 2; do
	kill -9 "$main"
	"$ctl" status | grep -q "system daemon" || fail "after kill -9: $("$ctl" status 2>&1)"
	until_true "restarted" is NRestarts 1
	goes_on "kill -9"
	kill -SEGV "$main"
	until_true "restarted" is NRestarts 2
	goes_on "a crash"
	systemctl reset-failed gpuprobed.service # counts the starts anew
	systemctl restart gpuprobed.service || fail restart
	goes_on "systemctl restart $round"
	systemctl reset-failed gpuprobed.service
done
LD_PRELOAD=$shim "${application[@]}" --launches 100 --sleep-ms 40 & # that launches all the time
running=$!
until_true "it is probed" eval '[ "$(dumped)" != "0: $counted" ]'
systemctl restart gpuprobed.service || fail restart
sleep 1
kill -9 "$(property MainPID)"
until_true "restarted" is NRestarts 1
wait "$running" || fail "a program that runs while the daemon restarts"
counted=$((counted + 409600))
[ "$(dumped)" = "0: $counted" ] || fail "a program that ran while the daemon restarted: $(dumped), not $counted; $("$ctl" why)"
touch /run/enough
wait $connecting && grep -q "^all of them" /run/refused || fail "a client was refused while the daemon restarted: $(cat /run/refused)"
systemctl reset-failed gpuprobed.service

echo "a script restarts it again and again"
main=0
for round in 1 2 3 4 5 6 7 8 9 10; do
	systemctl restart gpuprobed.service || fail "restart $round in a row"
done
goes_on "ten restarts in a row"
"$ctl" detach 2 || fail "detach what was attached five daemons ago"
[ "$("$ctl" attach "$counter")" = 3 ] || fail "ids go on"

echo "stopped, and started by the next who asks"
systemctl stop gpuprobed.service 2>/dev/null || fail stop
is Result success || fail "stop: $(property Result)"
[ "$(property NFileDescriptorStore)" = 0 ] || fail "stop: $(property NFileDescriptorStore) descriptors are kept"
journalctl --sync
explained "MESSAGE_ID=${ids[1]}" | grep -q "The GPU probe daemon stops" || fail "stop: $(explained)"
[ "$(ls /run/gpuprobe | tr '\n' ' ')" = "interest io.gpuprobe.control shim.sock " ] || fail "left behind: $(ls /run/gpuprobe)"
LD_PRELOAD=$shim "${application[@]}" || fail "the program without a daemon"
"$ctl" status | grep -q "system daemon" || fail "start by socket again"
[ -z "$("$ctl" list --json | grep program)" ] || fail "attached after a stop: $("$ctl" list)"
systemctl restart gpuprobed.service && "$ctl" status >/dev/null || fail restart

echo "configuration"
conf=/etc/gpuprobed/gpuprobed.conf
mkdir -p $conf.d
log_has() { journalctl --sync; journalctl -q --no-pager -o cat -u gpuprobed.service | grep -qF "$1"; }
deadline() { od -An -td4 -j20 -N4 /run/gpuprobe/interest | tr -d ' '; } # of struct interest_page
echo "deadline-ms = 3000" >$conf
systemctl restart gpuprobed.service || fail "restart with a file"
main=$(property MainPID)
[ "$(deadline)" = 3000 ] || fail "deadline-ms: $(deadline)"
printf 'deadline-ms = 4000\nworkers = 7\n' >$conf.d/10.conf
"$ctl" attach "$counter" >/dev/null || fail "attach before a reload"
counted=0
counts_on attach
systemctl reload gpuprobed.service || fail reload
until_true "reloaded" is StatusText "configuration reloaded"
counts_on "a reload"
[ "$(deadline)" = 4000 ] || fail "deadline-ms after a reload: $(deadline)"
log_has "needs a restart, and stays as it was: workers" || fail "workers: $(journalctl -u gpuprobed.service | tail -5)"
printf 'deadline-ms = 5000\nworker = 7\n' >$conf.d/10.conf
systemctl reload gpuprobed.service 2>/dev/null && fail "a wrong file is reloaded"
log_has "gpuprobed: $conf.d/10.conf:2: worker: there is no such setting" || fail "$(journalctl -u gpuprobed.service | tail -5)"
kill -HUP "$main" # without the check of the unit
until_true "not reloaded" is StatusText "configuration not reloaded: $conf.d/10.conf:2: worker: there is no such setting; gpuprobed --help has their names"
[ "$(deadline)" = 4000 ] || fail "a wrong file has changed something: $(deadline)"
counts_on "a reload that fails"
is ActiveState active && is MainPID "$main" || fail "the daemon did not survive a reload"
rm -r /etc/gpuprobed
systemctl reload gpuprobed.service || fail "reload without files"
has_defaults() { [ "$(deadline)" = 2000 ]; }
until_true "the defaults" has_defaults

echo "metrics, and a file that the unit may not write"
mkdir -p /etc/gpuprobed
printf 'metrics-period-ms = 100\nmetrics = %s\n' /var/lib/gpuprobed/gpuprobe.prom >$conf
printf 'metrics = unix:/run/gpuprobe/metrics\nmetrics = /usr/gpuprobe.prom\n' >>$conf
systemctl restart gpuprobed.service || fail "restart with metrics"
until_true "metrics in a file" grep -qs "^# EOF" /var/lib/gpuprobed/gpuprobe.prom
[ "$(stat -c "%a %U %G" /var/lib/gpuprobed/gpuprobe.prom /run/gpuprobe/metrics | tr '\n' ,)" = "640 gpuprobe gpuprobe,660 gpuprobe gpuprobe," ] ||
	fail "metrics: $(stat -c "%a %U %G" /var/lib/gpuprobed/gpuprobe.prom /run/gpuprobe/metrics)"
unwritten() { "$ctl" status | grep -q -- "--metrics=/usr/gpuprobe.prom: cannot be written: Read-only file system"; }
until_true "it is said what cannot be written" unwritten
rm -r /etc/gpuprobed
systemctl restart gpuprobed.service && [ ! -e /run/gpuprobe/metrics ] || fail "restart without metrics"

watched() { # OPTIONS: with a short time, and no patience
	mkdir -p /run/systemd/system/gpuprobed.service.d
	printf '[Service]\nWatchdogSec=2s\nRestartSec=3s\nEnvironment=OPTIONS=%s\nLimitCORE=0\n' "$1" >/run/systemd/system/gpuprobed.service.d/test.conf
	systemctl daemon-reload
	systemctl stop gpuprobed.service 2>/dev/null
	systemctl reset-failed gpuprobed.service
	systemctl start gpuprobed.service || fail "start, watched, with OPTIONS=$1"
	is Result success || fail "it has ended already"
}
beats() { [ "$(property WatchdogTimestampMonotonic)" -gt "$1" ]; }

echo "watchdog: a daemon that works"
watched ""
for _ in 1 2 3; do until_true "a sign of life" beats "$(property WatchdogTimestampMonotonic)"; done
is NRestarts 0 || fail "the watchdog has killed a daemon that works"

echo "watchdog: a loop that hangs"
"$ctl" attach "$counter" >/dev/null || fail "attach, watched"
counted=0 main=0
goes_on attach
kill -STOP "$main"
until_true "ended by the watchdog" is Result watchdog
until_true "the next one runs" is ActiveState active
goes_on "the watchdog's signal"
"$ctl" detach --all || fail "detach after the watchdog's signal"

echo "watchdog: workers that hang"
watched "--image-worker-argument=--test-fault=hang"
until_true "ended by the watchdog" is Result watchdog

echo "a daemon that cannot run is given up, and its sockets with it"
printf '[Service]\nEnvironment=OPTIONS=--no-such-option\nRestartSec=50ms\n' >/run/systemd/system/gpuprobed.service.d/test.conf
systemctl daemon-reload
systemctl reset-failed gpuprobed.service
systemctl restart gpuprobed.service 2>/dev/null && fail "it starts with a wrong option"
"$ctl" status >/opt/test/waits 2>&1 &
waits=$!
given_up() { is ActiveState failed && [ "$(systemctl show -P ActiveState gpuprobed.socket)" = failed ]; }
until_true "given up" given_up
wait "$waits" && fail "a client of a daemon that cannot run: $(cat /opt/test/waits)"
[ "$(wc -l </opt/test/waits)" = 1 ] || fail "a client of a daemon that cannot run: $(cat /opt/test/waits)"
[ "$(systemctl show -P Result gpuprobed.socket)" = service-start-limit-hit ] || fail "the socket: $(systemctl show -P Result gpuprobed.socket)"
restarts=$(property NRestarts)
[ "$restarts" -le 25 ] || fail "started $restarts times"
"$ctl" status 2>&1 | grep -q "no daemon at /run/gpuprobe.*systemctl" || fail "after it was given up: $("$ctl" status 2>&1)"
"$ctl" doctor 2>&1 | grep -q "systemctl reset-failed" || fail "doctor: $("$ctl" doctor 2>&1)"
LD_PRELOAD=$shim "${application[@]}" || fail "the program without a daemon"
given_up && is NRestarts "$restarts" || fail "it is started again"
rm /run/systemd/system/gpuprobed.service.d/test.conf
systemctl daemon-reload
systemctl reset-failed 'gpuprobed*'
systemctl start gpuprobed.service && "$ctl" status >/dev/null || fail "started after it was given up: $("$ctl" status 2>&1)"

echo "drop-ins for the host"
rm -r /run/systemd/system/gpuprobed.service.d
systemctl daemon-reload # no short watchdog, no workers that hang
systemctl reset-failed gpuprobed.service
drop_in() { # NAME CAPABILITIES: of the daemon with it
	install -D -m 644 "/opt/test/$1.conf" "/run/systemd/system/gpuprobed.service.d/$1.conf"
	systemctl daemon-reload
	systemctl reset-failed gpuprobed.service
	systemctl restart gpuprobed.service || fail "start with $1.conf"
	for id in $(seq 9); do "$ctl" detach "$id" 2>/dev/null; done # it goes on with what was attached before
	grep -q "^CapEff:.0*$2$" "/proc/$(property MainPID)/status" || fail "$1.conf: $(grep Cap "/proc/$(property MainPID)/status")"
}
other=(setpriv --reuid 65534 --regid 65534 --clear-groups env "LD_PRELOAD=$shim" "${application[@]}")
systemctl restart gpuprobed.service
"$ctl" status | grep -q "^missing: .*CAP_SYS_PTRACE" || fail "it does not say what it lacks: $("$ctl" status)"
"$ctl" attach "$counter" --exe /opt/test/vec_add_driver >/dev/null || fail "attach --exe"
"${other[@]}" || fail "another user's program"
[ "$(dumped)" = "0: 0" ] || fail "another user's executable is known: $(dumped)"
"$ctl" trace --backend=bpf -d 1 2>&1 | grep -q "^gpuprobectl: not traced: bpf: .*host-tracing.conf" || fail "trace does not say what it lacks: $("$ctl" trace --backend=bpf -d 1 2>&1)"
drop_in host-tracing c000080000
"$ctl" trace --backend=bpf -d 1 2>&1 | grep "not traced" && fail "host-tracing.conf does not suffice for trace"
"$ctl" status | grep -q "CAP_SYS_PTRACE" && fail "$("$ctl" status)"
"$ctl" attach "$counter" --exe /opt/test/vec_add_driver >/dev/null || fail "attach --exe"
"${other[@]}" || fail "another user's program"
[ "$(dumped)" = "0: 12288" ] || fail "host-tracing.conf: $(dumped); $("$ctl" why)"
drop_in kernel-hooks c400280004
"$ctl" hook list >/dev/null || fail "hook list"

echo "nothing is left behind"
watched ""
systemctl stop gpuprobed.service gpuprobed.socket gpuprobed-shim.socket || fail "the last stop"
[ "$(ls -A /run/gpuprobe)" = interest ] || fail "left behind: $(ls -A /run/gpuprobe)"
echo ok >/opt/test/out/result
