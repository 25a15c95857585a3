#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The daemon in system mode, in a mount namespace with a /run of its own: modes, another user's process, who sees what.
set -u
build=$(realpath "$1")
if [ "${2:-}" != inside ]; then
	[ "$(id -u)" = 0 ] && unshare --mount --propagation private true 2>/dev/null || { echo "skipped: needs root and mount namespaces"; exit 77; }
	"$(dirname "$0")/../built.py" "$build" shim/libgpuprobe-shim.so tests/sim/libcuda.so.1 docs/counter.bpf.o daemon/translator/gpuprobe-program-worker || exit
	exec unshare --mount --propagation private "$0" "$build" inside
fi
fail() { echo "FAILED: $*"; "$ctl" why; cat /run/log; kill "$daemon" 2>/dev/null; exit 1; }
mount -t tmpfs none /run || exit 77
unset GPUPROBE_SESSION
ctl=$build/ctl/gpuprobectl
mkdir /run/systemd-private-test && mount --bind /run/systemd-private-test /var/tmp || exit 77 # as PrivateTmp= has it
"$build/daemon/gpuprobed/gpuprobed" --cache-size=0 --metrics=/var/tmp/a.prom --metrics=unix:/run/metrics --keep-artifacts=/var/tmp/b 2>/run/log &
daemon=$!
for _ in $(seq 100); do "$ctl" status >/dev/null 2>&1 && break; sleep 0.05; done
[ "$(grep -c "nobody else sees it: the unit has a /var/tmp of its own" /run/log)" = 2 ] || fail "private: $(cat /run/log)"
modes=$(cd /run/gpuprobe && stat -c '%a %n' . interest io.gpuprobe.control lock shim.sock | tr '\n' ' ')
[ "$modes" = "755 . 644 interest 666 io.gpuprobe.control 600 lock 666 shim.sock " ] || fail "modes: $modes"
"$ctl" status | grep -q "system daemon" || fail "$("$ctl" status)"
[ "$("$ctl" attach "$build/docs/counter.bpf.o")" = 1 ] || fail attach
application=(env "LD_PRELOAD=$build/shim/libgpuprobe-shim.so" "LD_LIBRARY_PATH=$build/tests/sim"
	"$build/tests/sim/vec_add_driver" --threads 4096 --launches 3)
"${application[@]}" || fail "the program"
expected=12288
nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups env) # setpriv itself still may read what is root's
if "${nobody[@]}" "$ctl" status >/dev/null 2>&1; then # the build folder may be root's alone
	"${nobody[@]}" "${application[@]}" || fail "another user's program"
	expected=24576
	[ "$("$ctl" why | wc -l)" = 2 ] || fail "why: $("$ctl" why)"
	[ "$("${nobody[@]}" "$ctl" why | wc -l)" = 1 ] || fail "why of another user: $("${nobody[@]}" "$ctl" why)"
	"${nobody[@]}" "$ctl" attach "$build/docs/counter.bpf.o" 2>/dev/null && fail "anybody may attach"
	"${nobody[@]}" "$ctl" detach 1 2>/dev/null && fail "anybody may detach"
	"${nobody[@]}" "$ctl" map dump counter 2>/dev/null && fail "anybody may read"
fi
[ "$("$ctl" map dump counter)" = "0: $expected" ] || fail "$("$ctl" map dump counter)"
kill "$daemon"
wait "$daemon" || fail "exit status $?"
[ "$(ls -A /run/gpuprobe)" = interest ] || fail "left behind: $(ls -A /run/gpuprobe)" # it stays: who maps it waits for the next
chown 65534 /run/gpuprobe # as the service's is
"$build/daemon/gpuprobed/gpuprobed" --cache-size=0 2>/run/log && fail "it runs in the folder of another user"
grep -q "^gpuprobed: error: /run/gpuprobe: not a directory of this user alone (.*systemctl start gpuprobed" /run/log || fail "another user's folder"
echo ok
