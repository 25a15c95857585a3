#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test-ptxas.py PTXAS BPF_RUN CASES...: what the CUDA compiler makes of a counter in vectorAdd; and it takes all cases.

Of the counter: no stack, no spills, and not one register more than the kernel needs by itself; called, and with the function's body pasted into the
kernel (what a pass may do: the body is one block with one `ret;`, and results and labels are its own).
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/conformance'))
import bpf  # noqa: E402
import run  # noqa: E402

KERNEL = '''
.visible .entry vectorAdd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
	.reg .pred %%p<2>;
	.reg .f32 %%f<4>;
	.reg .b32 %%r<6>;
	.reg .b64 %%rd<11>;
	%s
	ld.param.u64 %%rd1, [a];
	ld.param.u64 %%rd2, [b];
	ld.param.u64 %%rd3, [c];
	ld.param.u32 %%r2, [n];
	mov.u32 %%r3, %%ctaid.x;
	mov.u32 %%r4, %%ntid.x;
	mov.u32 %%r5, %%tid.x;
	mad.lo.s32 %%r1, %%r4, %%r3, %%r5;
	setp.ge.s32 %%p1, %%r1, %%r2;
	@%%p1 bra DONE;
	cvta.to.global.u64 %%rd4, %%rd1;
	mul.wide.s32 %%rd5, %%r1, 4;
	add.s64 %%rd6, %%rd4, %%rd5;
	cvta.to.global.u64 %%rd7, %%rd2;
	add.s64 %%rd8, %%rd7, %%rd5;
	ld.global.f32 %%f1, [%%rd8];
	ld.global.f32 %%f2, [%%rd6];
	add.f32 %%f3, %%f2, %%f1;
	cvta.to.global.u64 %%rd9, %%rd3;
	add.s64 %%rd10, %%rd9, %%rd5;
	st.global.f32 [%%rd10], %%f3;
DONE:
	ret;
}
'''

CALL = '''
	{
	.param .b64 r;
	call.uni (r), __gpuprobe_run, ();
	}
'''

COUNTER = '''
*(u32 *)(r10 - 4) = 0; r2 = r10; r2 += -4; r1 = map[0] ll; call 1; if r0 == 0 goto out
r1 = 1; lock *(u64 *)(r0 + 0) += r1
out: ; r0 = 0; exit
'''

HEADER = '.version 8.0\n.target sm_%d\n.address_size 64\n'


def assembled(ptxas, sm, text):
    """Registers, bytes of stack of the kernel."""
    with tempfile.NamedTemporaryFile('w', suffix='.ptx') as f:
        f.write(HEADER % sm + text)
        f.flush()
        p = subprocess.run([ptxas, '-arch=sm_%d' % sm, '-v', '-o', '/dev/null', f.name], capture_output=True, text=True)
    if p.returncode:
        sys.exit('ptxas: %s' % p.stderr)
    stacks = [int(n) for n in re.findall(r'(\d+) bytes (?:stack|spill)', p.stderr)]
    return int(re.search(r'Used (\d+) registers', p.stderr)[1]), sum(stacks)


def check_cases(ptxas, bpf_run, paths):
    """All programs that are not refused, for sm_90. The number of those that the CUDA compiler does not take."""
    failed = count = 0
    for case in [c for path in paths for c in run.read_cases(path)]:
        if case.expected.startswith('error: '):
            continue
        options = [x for m in case.maps for x in ('--map', m)]
        if case.context is not None:
            options += ['--context', case.context.hex()]
        text = subprocess.run([bpf_run, '--ptx'] + options, input=case.code().hex(), capture_output=True, text=True, check=True).stdout
        with tempfile.NamedTemporaryFile('w', suffix='.ptx') as f:
            f.write(text)
            f.flush()
            p = subprocess.run([ptxas, '-arch=sm_90', '-o', '/dev/null', f.name], capture_output=True, text=True)
        count += 1
        if p.returncode:
            failed += 1
            print('%s: %s: %s' % (case.path, case.name, p.stdout + p.stderr))
    print('%d cases, %d refused by ptxas' % (count, failed))
    return failed or not count


def main():
    ptxas, bpf_run, *paths = sys.argv[1:]
    failed = check_cases(ptxas, bpf_run, paths)
    for kind in ('2:4:8:1', '1503:4:8:1', '6:4:8:1'):
        text = subprocess.run([bpf_run, '--ptx', '--context', '00', '--map', kind], input=bpf.assemble(COUNTER).hex(), capture_output=True,
                              text=True, check=True).stdout
        text = text[text.index('.visible '):text.index('.visible .entry')]
        assert text.count('ret;') == 1 and '.local' not in text, text
        slot, body = text[:text.index('.func')], text[text.index('\n{\n'):]
        body = re.sub(r'\tst\.param.*\n\tret;\n', '', body)
        for sm in (75, 90):
            bare = assembled(ptxas, sm, KERNEL % '')
            called = assembled(ptxas, sm, text + KERNEL % CALL)
            pasted = assembled(ptxas, sm, slot + KERNEL % (body + body))
            print('map %s, sm_%d: registers bare %d, called %d, pasted twice %d; bytes of stack %d, %d, %d' %
                  (kind, sm, bare[0], called[0], pasted[0], bare[1], called[1], pasted[1]))
            if called[0] > bare[0] or pasted[0] > bare[0] or called[1] or pasted[1]:
                failed = 1
    return 1 if failed else 0


sys.exit(main())
