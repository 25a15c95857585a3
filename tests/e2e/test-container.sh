#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test-container.sh BUILD: a CUDA program in a container, as docs/guides/containers.md describes it: a root of its own, made of bind mounts of this machine's
# files, with namespaces of mounts, processes and users, and in it what `gpuprobectl shim cdi` says. The daemon outside probes it. Once with LD_PRELOAD, once with
# ld.so.preload in the container. Needs root and namespaces.
set -u
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
if [ "${2:-}" = "" ]; then
	[ "$(id -u)" = 0 ] && unshare --mount --propagation private true 2>/dev/null || { echo "skipped: needs root and mount namespaces"; exit 77; }
	unshare --user --map-root-user --mount --pid --fork mount -t proc proc /proc 2>/dev/null || { echo "skipped: needs user namespaces"; exit 77; }
	"$(dirname "$0")/../built.py" "$build" shim/libgpuprobe-shim.so tests/sim/libcuda.so.1 docs/counter.bpf.o daemon/translator/gpuprobe-program-worker || exit
	exec unshare --mount --propagation private "$0" "$build" host
fi

# ---- inside: PID 1 of the container, whose root is the folder that it is in ----
if [ "$2" = container ]; then
	set -e
	mount --rbind "$PWD" "$PWD"
	cd "$PWD"
	mount -t proc proc proc
	mkdir -p old
	pivot_root . old
	umount -l old
	cd /
	[ "$$" = 1 ] || { echo "process $$ of the container"; exit 1; }
	[ ! -e /run/gpuprobe/lock ] || ! (: >/run/gpuprobe/new) 2>/dev/null || { echo "the daemon's folder can be written to"; exit 1; }
	exec env - PATH=/usr/bin:/bin LD_LIBRARY_PATH=/opt/cuda "${@:3}"
fi

# ---- outside: the host ----
fail() { echo "FAILED: $*"; cat /run/log; kill "${daemon:-}" "${waiting:-}" 2>/dev/null; exit 1; }
mount -t tmpfs -o mode=755 none /run || exit 77
unset GPUPROBE_SESSION
ctl=$build/ctl/gpuprobectl root=/run/container
"$build/daemon/gpuprobed/gpuprobed" --cache-size=0 2>/run/log &
daemon=$!
for _ in $(seq 200); do "$ctl" status >/dev/null 2>&1 && break; sleep 0.05; done

# the library where root alone may change it, as packages put it
mkdir -p /run/host $root
install -m 644 "$build/shim/libgpuprobe-shim.so" /run/host/
"$ctl" shim cdi /run/host/libgpuprobe-shim.so >/run/cdi.json || fail "shim cdi"
# what a runtime does: files of an image (here the machine's own, read-only), then the specification's mounts and environment
for path in usr bin sbin lib lib64 etc dev; do
	[ -e /$path ] || continue
	mkdir $root/$path
	mount --bind /$path $root/$path
done
mkdir $root/{proc,run,tmp,opt,old}
mkdir -p $root/opt/cuda $root/run/gpuprobe
cp "$build"/tests/sim/{libcuda.so.1,vec_add_driver} "$0" $root/opt/cuda
mount -t tmpfs none $root/usr/lib/gpuprobe 2>/dev/null || { # the image is read-only: a folder of its own on top of it
	mkdir -p /run/upper /run/over
	mount -t overlay overlay -o "lowerdir=/usr,upperdir=/run/upper,workdir=/run/over" $root/usr || fail "overlay"
	mkdir -p $root/usr/lib/gpuprobe
}
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$(mkdir -p /run/e1 && echo /run/e1),workdir=$(mkdir -p /run/e2 && echo /run/e2)" $root/etc || fail "overlay of etc"
python3 - /run/cdi.json $root >/run/edits <<'END' || fail "the specification"
import json, os, sys
edits = json.load(open(sys.argv[1]))["devices"][0]["containerEdits"]
for mount in edits["mounts"]:
    target = sys.argv[2] + mount["containerPath"]
    if not os.path.isdir(mount["hostPath"]):
        open(target, "a").close()
    print("mount", mount["hostPath"], target, ",".join(option for option in mount["options"] if not option.startswith("r")))
print("env", *edits["env"])
END
while read -r what from to options; do
	if [ "$what" = mount ]; then
		mount --rbind "$from" "$to" && mount -o "remount,bind,ro,$options" "$to" || fail "mount $from"
	else
		preload=$from
	fi
done </run/edits
[ "$preload" = LD_PRELOAD=/usr/lib/gpuprobe/libgpuprobe-shim.so ] || fail "environment: $preload"

in_container() { # NAMESPACES COMMAND...: prints the host's number of the process that runs
	local namespaces=$1
	shift
	# shellcheck disable=SC2086
	(cd $root && exec unshare --mount --propagation private --pid --fork --kill-child $namespaces "$root/opt/cuda/$(basename "$0")" "$build" container "$@")
}
program=(/opt/cuda/vec_add_driver --threads 4096 --launches 3)
count() { "$ctl" map dump counter; }

"$ctl" attach "$build/docs/counter.bpf.o" >/dev/null || fail attach
echo "without the specification's environment: not reached"
in_container "" "${program[@]}" || fail "the program"
[ "$(count)" = "0: 0" ] || fail "$(count)"
echo "LD_PRELOAD"
in_container "" "$preload" "${program[@]}" || fail "the program"
[ "$(count)" = "0: 12288" ] || fail "$(count); $("$ctl" why)"
pid=$("$ctl" why --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["outcomes"][0]["pid"])')
[ "$pid" -gt 1 ] && [ "$pid" != 1 ] || fail "its number is that of the container: $pid"
echo "a user namespace"
in_container "--user --map-root-user" "$preload" "${program[@]}" || fail "the program"
[ "$(count)" = "0: 24576" ] || fail "$(count); $("$ctl" why)"
echo "ld.so.preload of the container"
echo /usr/lib/gpuprobe/libgpuprobe-shim.so >$root/etc/ld.so.preload
in_container "" "${program[@]}" || fail "the program"
[ "$(count)" = "0: 36864" ] || fail "$(count); $("$ctl" why)"
[ ! -e /etc/ld.so.preload ] || fail "the host has it, too"

echo "processes by the numbers that the host knows"
"$ctl" detach 1 || fail detach
mkfifo /run/go $root/tmp/go
in_container "" /bin/sh -c "read x </tmp/go; exec ${program[*]}" &
waiting=$!
for _ in $(seq 200); do
	pid=$(for p in /proc/[0-9]*; do [ "$(cat "$p/comm")" = sh ] && tr '\0' ' ' <"$p/cmdline" | grep -q "^/bin/sh -c read x" && echo "${p#/proc/}"; done 2>/dev/null | head -1)
	[ -n "$pid" ] && break
	sleep 0.05
done
[ -n "$pid" ] || fail "the container's process is not seen"
"$ctl" attach "$build/docs/counter.bpf.o" --pid "$pid" >/dev/null || fail "attach --pid"
echo >$root/tmp/go
wait $waiting || fail "the program"
[ "$("$ctl" why --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["outcomes"][0]["pid"])')" = "$pid" ] || fail "why: $("$ctl" why); the process is $pid"
[ "$(count)" = "0: 12288" ] || fail "--pid: $(count); $("$ctl" why)"
"$ctl" detach 2 || fail detach
"$ctl" attach "$build/docs/counter.bpf.o" --exe /opt/cuda/vec_add_driver >/dev/null || fail "attach --exe"
in_container "" "${program[@]}" || fail "the program"
[ "$(count)" = "0: 12288" ] || fail "--exe: $(count); $("$ctl" why)"
"$ctl" doctor --only=reach.containers >/dev/null || fail "doctor"
kill "$daemon"
wait "$daemon" || fail "exit status $?"
echo ok
