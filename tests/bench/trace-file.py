#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace-file.py EVENTS [REPORT...]: writes a trace of so many events (jsonl) to standard output, as `gpuprobectl trace` would: launches with their kernels, allocations
and frees, ioctls within calls, of 16 threads and 200 kernels. With REPORT..., a command (`gpuprobectl trace report -`), pipes it there and says how long that took,
how much processor time and memory it needed.

    tests/bench/trace-file.py 10000000 build/ctl/gpuprobectl trace report --all -
"""

import os
import subprocess
import sys
import time

START = (
    '{"type":"start","format":"gpuprobe-trace","version":1,"monotonic":5000000000,"realtime":1700000000000000000,"host":"bench","driver":"580.159.04",'
    '"daemon":"0.1.0"}\n'
)
COMMON = '"pid":4711,"tid":%d,"comm":"python","thread":"worker","source":"shim"'
EVENTS = (
    '{"event_id":%d,"ts":%.6f,"type":"userspace","name":"cuLaunchKernel","class":"launch","phase":"X","ts_ns":%d,"dur_ns":%d,"duration_us":%.3f,'
    + COMMON
    + ',"flow":%d,"sequence":%d,"ret":0,"ret_name":"CUDA_SUCCESS","stream":"0x55d0c8a4e2f0","kernel":"_Z6kernel%dPf","args":{"f":"0x55d0c8a4e2f0","gridDimX":128,'
    '"gridDimY":1,"gridDimZ":1,"blockDimX":256,"blockDimY":1,"blockDimZ":1,"sharedMemBytes":0,"hStream":"0x55d0c8a4e2f0","kernelParams":"0x7ffd0c8a4e2f0","extra":"0x0"}}\n',
    '{"event_id":%d,"ts":%.6f,"type":"gpu","name":"kernel%d(float*)","class":"kernel","phase":"X","ts_ns":%d,"dur_ns":%d,"duration_us":%.3f,"pid":4711,"tid":%d,'
    '"source":"gpu","parent":%d,"flow":%d,"stream":"0x55d0c8a4e2f0","kernel":"_Z6kernel%dPf","error_ns":200}\n',
    '{"event_id":%d,"ts":%.6f,"type":"userspace","name":"cuMemAlloc_v2","base":"cuMemAlloc","class":"memory","phase":"X","ts_ns":%d,"dur_ns":9000,"duration_us":9.000,'
    + COMMON
    + ',"ret":0,"ret_name":"CUDA_SUCCESS","size":65536,"args":{"bytesize":65536},"out":{"dptr":"%#x"}}\n',
    '{"event_id":%d,"ts":%.6f,"type":"ioctl","name":"NV_ESC_RM_ALLOC","class":"ioctl","phase":"X","ts_ns":%d,"dur_ns":5000,"duration_us":5.000,'
    + COMMON
    + ',"parent":%d,"cmd":3224389163,"ret":0,"ret_name":"NV_OK","size":65536,"args":{"hRoot":"0xc1d00001","hParent":"0x5c000001","hClass":"NV01_MEMORY_LOCAL_USER"}}\n',
    '{"event_id":%d,"ts":%.6f,"type":"userspace","name":"cuMemFree_v2","base":"cuMemFree","class":"memory","phase":"X","ts_ns":%d,"dur_ns":3000,"duration_us":3.000,'
    + COMMON
    + ',"ret":0,"ret_name":"CUDA_SUCCESS","args":{"dptr":"%#x"}}\n',
)


def group(i):
    """Five events, of which the first is number i."""
    at, tid, kernel, address = 4000 * i, 100 + i // 5 % 16, i // 5 % 200, 0x7F0000000000 + 0x10000 * i
    duration, running = 2000 + i % 977, 3000 + i % 6131
    ids = range(i, i + 5)
    starts = [at, at + 4000, at + 8000, at + 9000, at + 18000]
    return "".join(
        (
            EVENTS[0] % (ids[0], starts[0] / 1e6, starts[0], duration, duration / 1e3, tid, i, i, kernel),
            EVENTS[1] % (ids[1], starts[1] / 1e6, kernel, starts[1], running, running / 1e3, tid, ids[0], i, kernel),
            EVENTS[2] % (ids[2], starts[2] / 1e6, starts[2], tid, address),
            EVENTS[3] % (ids[3], starts[3] / 1e6, starts[3], tid, ids[2]),
            EVENTS[4] % (ids[4], starts[4] / 1e6, starts[4], tid, address),
        )
    )


def write(out, n):
    out.write(START.encode())
    for first in range(1, n + 1, 5000):
        out.write("".join(group(i) for i in range(first, min(first + 5000, n + 1), 5)).encode())
    out.write(b'{"type":"stop","events":%d,"lost":0}\n' % n)


def main():
    n = int(sys.argv[1]) // 5 * 5
    if len(sys.argv) == 2:
        write(sys.stdout.buffer, n)
        return
    begin = time.monotonic()
    process = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with process.stdin:
        write(process.stdin, n)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    print(
        f"{n} events: exit status {process.returncode}, {time.monotonic() - begin:.1f} s in all, {seconds:.2f} s of processor ({n / seconds / 1e6:.2f} M events/s), "
        f"peak {usage.ru_maxrss / 1024:.1f} MiB"
    )


if __name__ == "__main__":
    main()
