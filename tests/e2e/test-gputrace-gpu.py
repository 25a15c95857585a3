#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gputrace's probes on the GPU: words, aggregations, durations, memory, and random expressions that give the same on the host."""

import json
import os
import random
import re
import time

from gputracing import APP, BLOCK, KERNEL, LAUNCHES, THREADS, gputrace, maps
from harness import VEC_ADD, check, equal, main


def test_words_on_the_gpu():
    found, err = maps(
        "thread:vectorAdd { @k[kernel] = count(); @g[grid.x, grid.y, grid.z, grid] = count(); @b[blockdim.x, blockdim.y, blockdim.z, blockdim] = count();"
        "@block[blockid, blockid.x, blockid.y, blockid.z] = count(); @x = sum(threadid.x); @n = sum(threadid); @w[warp] = count(); @l[lane] = count();"
        "@launch[launch != 0, stream, node, smem, device] = count(); @sm = max(sm); @p = min(pid); @id = max(blockid * blockdim + threadid); @pa = count(); }"
    )
    everything = THREADS * LAUNCHES
    blocks = THREADS // BLOCK
    equal(err, "")
    equal(found["@k"], {(KERNEL,): everything})
    equal(found["@g"], {(blocks, 1, 1, blocks): everything})
    equal(found["@b"], {(BLOCK, 1, 1, BLOCK): everything})
    equal(found["@block"], {(i, i, 0, 0): BLOCK * LAUNCHES for i in range(blocks)})
    equal(found["@x"], {(): LAUNCHES * blocks * sum(range(BLOCK))})
    equal(found["@n"], found["@x"])
    equal(found["@w"], {(i,): 32 * blocks * LAUNCHES for i in range(BLOCK // 32)})
    equal(found["@l"], {(i,): everything // 32 for i in range(32)})
    equal(found["@launch"], {(1, 1, 0, 0, 0): everything}, "launch, stream (the legacy one), node, shared memory, device")
    equal(found["@id"], {(): THREADS - 1})
    check(found["@p"][()] > 1, found["@p"])


def test_aggregations():
    """Of each thread's number of the first block, less 3."""
    found, err = maps(
        "thread:vectorAdd /blockid == 0/ { $v = threadid - 3; @count = count(); @sum = sum($v); @avg = avg($v); @min = min($v); @max = max($v);"
        "@stats = stats($v); @hist = hist($v); @lhist = lhist($v, 0, 100, 25); @k[$v % 2] = max($v); @kh[lane / 16] = hist(warp); @add += 2; @sub -= 3; @inc++; @set = 5; }"
    )
    values = [v - 3 for v in range(BLOCK)] * LAUNCHES
    equal(err, "")
    equal(found["@count"][()], len(values))
    equal(found["@sum"][()], sum(values))
    equal(found["@avg"][()], sum(values) // len(values))
    equal(found["@min"][()], -3)
    equal(found["@max"][()], BLOCK - 4)
    equal(found["@stats"][()], {"count": len(values), "average": sum(values) // len(values), "total": sum(values)})
    logs = {}
    for v in values:
        low = None if v < 0 else 0 if v == 0 else 1 << (v.bit_length() - 1)
        logs[low] = logs.get(low, 0) + 1
    equal({bucket.get("min"): bucket["count"] for bucket in found["@hist"][()]}, logs)
    linear = {None: 3 * LAUNCHES, 0: 25 * LAUNCHES, 25: 25 * LAUNCHES, 50: 25 * LAUNCHES, 75: 25 * LAUNCHES, 100: 25 * LAUNCHES}
    equal({bucket.get("min"): bucket["count"] for bucket in found["@lhist"][()]}, linear)
    equal(found["@k"], {(0,): 124, (1,): 123, (-1,): -1}, "signs of remainders are those of C")
    equal({bucket["min"]: bucket["count"] for bucket in found["@kh"][(1,)]}, {0: 16 * LAUNCHES, 1: 16 * LAUNCHES, 2: 32 * LAUNCHES})
    equal((found["@add"][()], found["@sub"][()], found["@inc"][()], found["@set"][()]), (2 * len(values), -3 * len(values), len(values), 5))


FLOAT_AGGREGATIONS = ("min", "max", "hist", "sum", "avg", "stats")
FLOAT_BITS = [
    "0x7fc00000",
    "0x7f800000",
    "0xff800000",
    "0x3f800000",
    "0x80000000",
    "0x00000001",
    "0x7c00",
    "0x7e00",
    "0x3c00",
    "0x83ff",
    "0x0001",
    "0xbf80",
    "0x7fc0",
    "0x7ff0000000000000",
]


def random_float(chance, depth):
    bits = chance.choice(FLOAT_BITS) if chance.random() < 0.4 else random_expression(chance, depth - 1)
    return f"{chance.choice(['f16', 'bf16', 'f32', 'f64'])}({bits})"


def random_float_test(chance, depth):
    one = random_float(chance, depth)
    if chance.random() < 0.4:
        return f"{chance.choice(['isnan', 'isinf'])}({one})"
    other = random_float(chance, depth) if chance.random() < 0.6 else chance.choice(["0", "1", "-1", "0.5", "-1.5e-3", "65504.0"])
    return f"({one} {chance.choice(['==', '!=', '<', '<=', '>', '>='])} {other})"


def random_expression(chance, depth):
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(["$a", "$b", "$c", "$d", str(chance.choice([0, 1, 2, 7, 63, 255, 65536, 2**31, 2**40, 2**62]))])
    kind = chance.random()
    if kind > 0.85:
        return random_float_test(chance, depth)
    inner = [random_expression(chance, depth - 1) for _ in range(3)]
    if kind < 0.1:
        return f"({inner[0]} ? {inner[1]} : {inner[2]})"
    if kind < 0.25:
        return f"{chance.choice('-!~')}({inner[0]})"
    operator = chance.choice(["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=", "&&", "||"])
    right = "$b" if operator in "/%" and inner[1].isdigit() else inner[1]
    return f"({inner[0]} {operator} {right})"


def test_same_on_both_sides():
    """Random expressions give the same on the host and on the GPU; another seed each time, which is said."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1000000))
    chance = random.Random(seed)
    print(f"SEED={seed}")
    for _ in range(6):
        values = [chance.choice([0, 1, -1, 3, -7, 2**63 - 1, -(2**62), chance.getrandbits(40), -chance.getrandbits(20)]) for _ in range(4)]
        begin = "".join(f"${name} = {value}; " for name, value in zip("abcd", values))
        expressions = [random_expression(chance, 4) for _ in range(9)]
        floats = [random_float(chance, 3) for _ in FLOAT_AGGREGATIONS]
        sums = {
            side: "".join(f"@{side}{i} = sum({e}); " for i, e in enumerate(expressions))
            + "".join(f"@{side}f{i} = {FLOAT_AGGREGATIONS[i]}({e}); " for i, e in enumerate(floats))
            for side in "hg"
        }
        found, err = maps(
            f"BEGIN {{ {begin}{sums['h']} }} thread:vectorAdd /threadid == 0/ {{ {begin}{sums['g']} }}", app=[VEC_ADD, "--threads", "32", "--block", "32"]
        )
        equal(err, "")
        for i, e in enumerate(expressions):
            equal(found.get(f"@g{i}"), found.get(f"@h{i}"), f"SEED={seed} {begin}{e}")
        for i, e in enumerate(floats):
            equal(found.get(f"@gf{i}") or {}, found.get(f"@hf{i}") or {}, f"SEED={seed} {begin}{FLOAT_AGGREGATIONS[i]} {e}")


def test_float_sums():
    """Of all threads, of both sides, and over intervals that clear them."""
    script = "thread:* { @s = sum(f32(0x3e800000)); @a = avg(f16(0x3c00)); @t = stats(f64(0x4004000000000000)); } launch:* { @s = sum(f32(0x3f800000)); }"
    found, err = maps(script)
    each = THREADS * LAUNCHES
    equal((found, err), ({"@s": {(): each / 4 + LAUNCHES}, "@a": {(): 1.0}, "@t": {(): {"count": each, "average": 2.5, "total": each * 2.5}}}, ""))
    out, _ = gputrace("-e", script + " END { clear(@s); }")
    equal(out, f"\n@a: 1\n\n@t: count {each}, average 2.5, total {each * 2.5:g}\n")
    out, _ = gputrace(
        "-f", "json", "-e", "thread:* { @s = sum(f32(0x3e800000)); } interval:ms:20 { print(@s); clear(@s); }", app=[*APP[:-1], "20", "--sleep-ms", "20"]
    )
    equal(sum(entry["value"] for line in out.splitlines() for entry in json.loads(line)["entries"]), THREADS * 20 / 4)


def test_leads_and_durations():
    found, err = maps(
        "block.lead:* { @b[blockid] = count(); } warp.lead:*:end { @w[warp] = count(); @d = stats(duration); } thread:*:end { @t = min(duration); @n = count(); }"
    )
    blocks = THREADS // BLOCK
    equal(err, "")
    equal(found["@b"], {(i,): LAUNCHES for i in range(blocks)})
    equal(found["@w"], {(i,): blocks * LAUNCHES for i in range(BLOCK // 32)})
    equal(found["@d"][()]["count"], blocks * BLOCK // 32 * LAUNCHES)
    equal(found["@n"][()], THREADS * LAUNCHES)
    check(found["@t"][()] > 0 and found["@d"][()]["average"] > 0, found)


def test_whole_parts():
    """Blocks, warps and grids by the first of their threads and the last one, also where the last warp is not full."""
    blocks, block, launches = 5, 80, 4
    app = [VEC_ADD, "--threads", str(blocks * block), "--block", str(block), "--launches", str(launches)]
    found = {}
    for script in (
        "block:* { @b[blockid] = count(); } block:*:end { @be[blockid] = stats(duration); }",
        "warp:* { @w[warp] = count(); } warp:*:end { @we[warp] = stats(duration); }",
        "grid:* { @g[kernel, grid.x, blockdim.x] = count(); } grid:*:end { @ge = stats(duration); }",
    ):
        some, err = maps(script, app=app)
        equal(err, "", script)
        found.update(some)
    equal(found["@b"], {(i,): launches for i in range(blocks)})
    equal({keys: value["count"] for keys, value in found["@be"].items()}, found["@b"])
    equal(found["@w"], {(i,): launches * blocks for i in range(3)})
    equal({keys: value["count"] for keys, value in found["@we"].items()}, found["@w"])
    equal((found["@g"], found["@ge"][()]["count"]), ({(KERNEL, blocks, block): launches}, launches))
    longest = max(value["average"] for value in found["@be"].values())
    check(found["@ge"][()]["average"] > longest / 2 > 0, "a grid lasts as long as its blocks, which run one after the other there", found)
    found, err = maps("block:*:end { @b = count(); } grid:*:end { @g = count(); }", app=[*app[:-1], "40", "--how", "streams"])
    unknown = "durations are not known" in err
    equal((found["@b"][()] < 40 * blocks or found["@g"][()] < 40, not err or unknown), (unknown, True), f"{found} {err}")


def test_overlapping_durations():
    """Where it is not known whose end an end is, the duration is not made up: it is counted as unknown, in the same output."""
    app = [VEC_ADD, "--threads", "512", "--block", "128", "--launches", "40", "--how", "streams"]
    found, err = maps("thread:*:end { @d = stats(duration); } thread:* { @n = count(); }", app=app)
    unknown = re.search(r"(\d+) durations are not known", err)
    known = found["@d"][()]["count"]
    equal(known + int(unknown[1] if unknown else 0), found["@n"][()])


def test_memory():
    found, err = maps(
        "mem.thread:*:global:load { @load[line] = sum(bytes); } mem.thread:*:store { @store = count(); } mem.thread:*:atomic { @atomic = count(); }"
        "mem.thread:*:shared { @shared = count(); } mem.thread:* { @all = count(); @zero[addr == 0] = count(); }"
    )
    each = THREADS * LAUNCHES
    equal(err, "")
    equal(sorted(found["@load"].values()), [4 * each, 4 * each])
    check(all("ld.global" in keys[0] or ".cu:" in keys[0] for keys in found["@load"]), found["@load"])
    equal((found["@store"][()], found["@all"][()], found["@zero"]), (each, 3 * each, {(0,): 3 * each}))
    check("@atomic" not in found and "@shared" not in found, found)


def test_warps_at_memory():
    """All lanes of a warp at once: what they give together is what each gives, added up here."""
    found, err = maps(
        "mem:*:global:load { @load[line] = sum(bytes); @lanes[lanes] = count(); @sectors[sectors] = count(); } mem:*:store { @value = sum(sum(value != 0)); @span[max(addr) - min(addr)] = count();"
        "@first = sum(first(lane)); @all[all(addr > 0), any(lane == 31), any(lane > 31)] = count(); @lane[sum(lane)] = count(); @insn[insn] = count(); }",
        GPUPROBE_SIM_WARPS="whole",  # else its lanes are never together
    )
    warps = THREADS // 32 * LAUNCHES
    equal(err, "")
    equal(list(found["@load"].values()), [4 * 32 * warps] * 2)
    equal((found["@lanes"], found["@sectors"]), ({(32,): 2 * warps}, {(4,): 2 * warps}))
    equal((found["@span"], found["@first"], found["@all"], found["@lane"]), ({(124,): warps}, {(): 0}, {(1, 1, 0): warps}, {(496,): warps}))
    check(found["@value"][()] > 0.9 * 32 * warps and list(found["@insn"].values()) == [warps] and "st.global" in next(iter(found["@insn"]))[0], found)


if __name__ == "__main__":
    main(
        [
            test_words_on_the_gpu,
            test_aggregations,
            test_same_on_both_sides,
            test_float_sums,
            test_leads_and_durations,
            test_whole_parts,
            test_overlapping_durations,
            test_memory,
            test_warps_at_memory,
        ]
    )
