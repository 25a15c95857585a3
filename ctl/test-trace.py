#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-trace.py GPUPROBECTL FAKE_DAEMON: gpuprobectl trace and hook, against the fake daemon, which plays traces that are made here."""
import csv
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import trace_file as t

CTL, DAEMON = (os.path.abspath(path) for path in sys.argv[1:3])
OK, ERROR, USAGE, UNREACHABLE, VERIFIER, NOT_FOUND, PERMISSION = range(7)
SEE = '; see gpuprobectl --help\n'
RM_CONTROL = 0xc020462a
US = 1000


def basic():
    """Two threads; an allocation with an ioctl and a hook in it, a launch that fails, one whose kernel runs, what another thread did, a loss."""
    rm_control = struct.pack('<IIIIQII', 0xc1d00001, 0xcaf00000, 0x20801303, 0, 0x7ffe0000, 16, 0)
    return [
        t.start(), t.process(10), t.thread(10, 10, b'python'), t.thread(10, 11, b'worker'),
        t.name(t.HOOK_NAME, 5, b'work nvidia:nv_kthread_q_schedule_q_item(item:hex,name:str,again:bool)=s32'),
        t.name(t.KERNEL_NAME, 0xf0, b'_Z9vectorAddPfS_i', pid=10),
        t.clock(0, 5_000_000, error=40),
        t.event(5, 120 * US, 125 * US, (0xabc, 0xffff, 1), b'isr\0', result=0, cpu=3),
        t.ioctl(RM_CONTROL, 110 * US, 150 * US, before=rm_control, after=rm_control),
        t.call('cuMemAlloc_v2', 100 * US, 200 * US, (0x7ffe1000, 4 << 20), sequence=1, extras=((0, 1, struct.pack('<Q', 0x7f0000000000)),)),
        t.call('cuLaunchKernel', 300 * US, 310 * US, (0xf1, 1, 1, 1, 32, 1, 1, 0, 0x7, 0, 0), result=400, sequence=2),
        t.call('cuMemcpyHtoD_v2', 250 * US, 400 * US, (0x7f0000000000, 0x5000, 3 << 20), tid=11, sequence=1),
        t.call('cuLaunchKernel', 500 * US, 504 * US, (0xf0, 2, 1, 1, 64, 1, 1, 0, 0x7, 0, 0), sequence=3),
        t.lost(7, 505 * US, pid=10, tid=11),
        t.kernel(510 * US, 522 * US, sequence=3, function=0xf0, stream=7, error=100),
        t.call('cuCtxSynchronize', 506 * US, 600 * US, sequence=4),
        t.process(10, 700 * US, what=3, status=0),
        t.stop(800 * US, 14, 7),
    ]


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix='test-trace-'))
        self.addCleanup(shutil.rmtree, self.dir)
        self.socket = str(self.dir / 'socket')
        self.daemon = subprocess.Popen([DAEMON, self.socket], stdout=subprocess.PIPE, env={**os.environ, 'FAKE_TRACE': str(self.dir / 'command.last')})
        self.addCleanup(self.stop)
        self.assertEqual(self.daemon.stdout.readline(), b'ready\n')

    def stop(self):
        self.daemon.kill()
        self.daemon.wait()
        self.daemon.stdout.close()

    def file(self, name, data):
        path = self.dir / name
        path.write_bytes(data)
        return str(path)

    def environment(self):
        keep = ('ASAN', 'LSAN', 'UBSAN', 'LD_PRELOAD')
        return {'PATH': os.environ['PATH'], 'LC_ALL': 'C.UTF-8', 'TZ': 'UTC', **{key: value for key, value in os.environ.items() if key.startswith(keep)}}

    def start(self, *args, **more):
        return subprocess.Popen([CTL, '--socket', self.socket, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                cwd=self.dir, env=self.environment(), **more)

    def ctl(self, *args, status=OK, stderr=''):
        process = self.start(*args)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, err)
        if stderr is not None:
            self.assertEqual(err.decode(), stderr)
        return out.decode()

    def trace(self, records, *args, name='x', **more):
        """A trace of what the records say; LOSS is what it tells of losses."""
        path = self.file(name, b''.join(records))
        return self.ctl('trace', f'--cgroup={path}', *args, **more)

    def usage(self, *args, text):
        self.ctl(*args, status=USAGE, stderr='gpuprobectl: ' + text + SEE)


LOSS = 'gpuprobectl: lost 7 events\n'
TEXT = '''\
22:13:20.000100 python[10] cuMemAlloc_v2(dptr=[0x7f0000000000], bytesize=4.0MiB) = CUDA_SUCCESS <100.0us>
22:13:20.000110 python[10]   NV_ESC_RM_CONTROL(%s) = NV_OK <40.0us>
22:13:20.000120 python[10]   nvidia:nv_kthread_q_schedule_q_item(item=0xabc, name="isr", again=true) = 0 <5.00us>
'''


class Formats(Case):
    def test_text(self):
        lines = self.trace(basic(), stderr=LOSS).splitlines()
        print('\n'.join(lines))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
