# SPDX-License-Identifier: Apache-2.0
"""Statements of random programs that call helpers: of maps, rings, the log, the process, numbers and lanes.

What helpers take is below the data on the stack: the number of the thread at r10 - 72, a record's address at r10 - 80, keys from
r10 - 112 (16 bytes), texts and large records from r10 - 400. A statement leaves no address in a register that is data.
"""

OTHER, HASH, THREADS, RING = 1, 2, 4, 5  # indexes of maps; 0 is an array, 3 a hash too, 6 the log
NUMBER, KEPT, KEY, LARGE = -72, -80, -112, -400
HASHES = ["1:8:8:6", "1501:12:20:5", "1:4:8:3", "5:4:8:4", "1:3:5:4", "1501:16:72:4", "1:8:16:40", "9:8:16:600", "10:4:8:600"]
RINGS = ["27:0:0:4096", "1527:4:40:1", "4:4:4:64"]
TEXTS = ["", "x", "of %d", "100%% %x", "%d %u %lx %c", "seven!!", "eight...", "a text that is longer than the words %s", "%", "%%%"]
OUTPUT_SIZES = [0, 1, 3, 4, 8, 12, 16, 20, 24, 32, 40, 44, 64]
LARGE_SIZES = [65, 68, 72, 96, 100, 128, 136]


class Helpers:
    """A part of Generator in random-programs.py."""

    def make_maps(self, threads):
        """Maps of a program; of one thread, or of `threads` that must not see each other."""
        r = self.random
        self.hashes = r.sample(HASHES, 2)
        if threads > 1:
            self.hashes = [h.rsplit(":", 1)[0] + ":1024" for h in self.hashes]
        room = ",records,ring=%d" % (8 << 20 if threads > 1 else 16 << 10)
        self.thread_values = r.randrange(1, threads + 2)
        per_thread = "%d:4:8:2,threads=%d" % (r.choice([1502, 1512]), self.thread_values)
        other = "2:4:64:1" if self.context else "6:4:8:2"
        # what programs do with an array decides how it lies in memory
        self.style = "add" if threads > 1 else r.choice(["any", "any", "add", "update"])
        self.value_size = 16 if self.style != "update" else r.choice([8, 8, 4, 3, 1])
        host = [r.choice(["", "", ",host"]) for _ in range(3)]
        self.hashes = [h + place for h, place in zip(self.hashes, host)]
        kind = 6 if threads == 1 and not host[2] and r.random() < 0.4 else 2
        arrays = ["%d:4:%d:4%s" % (kind, self.value_size, host[2]), other]
        return arrays + self.hashes + [per_thread, r.choice(RINGS) + room, "1527:4:4096:1,log" + room]

    def operand(self):
        return self.random.choice([0, 6, 7])

    def result(self):
        """What a helper returned is not forgotten."""
        return ["r6 *= 5", "r6 ^= r0"] + self.fresh()

    def source(self, register, size):
        """The address of data: on the stack, or in memory."""
        r = self.random
        if r.random() < 0.6:
            return ["r%d = r10" % register, "r%d += %d" % (register, -r.randrange(max(size, 1), 65))]
        at = r.randrange(0, 65 - max(size, 1))
        if self.context:
            return ["r%d = value[%d] + %d ll" % (register, OTHER, at)]
        return ["r%d = r9" % register, "r%d += %d" % (register, at)]

    def key(self, size):
        """A key of few, or of the thread."""
        r = self.random
        out = ["*(u64 *)(r10 - %d) = 0" % -KEY, "*(u64 *)(r10 - %d) = %d" % (-KEY - 8, r.choice([0, 0, 1]) if size > 8 else 0)]
        if self.threads > 1:
            out += ["r1 = r%d" % self.operand(), "r1 &= 7", "r1 <<= 8", "r2 = *(u64 *)(r10 - %d)" % -NUMBER, "r1 += r2"]
            return out + ["*(u64 *)(r10 - %d) = r1" % -KEY]
        if r.random() < 0.5:
            return out + ["*(u8 *)(r10 - %d) = %d" % (-KEY - r.choice([0, min(size, 8) - 1]), r.randrange(6))]
        return out + ["r1 = r%d" % self.operand(), "r1 &= 7", "*(u8 *)(r10 - %d) = r1" % (-KEY - r.choice([0, size - 1]))]

    def value_operation(self, size):
        """Something with the value that r0 points to."""
        r = self.random
        if size < 8:
            return ["r1 = *(u8 *)(r0 + %d)" % (size - 1), "r1 += r6", "*(u8 *)(r0 + %d) = r1" % (size - 1)]
        at = 8 * r.randrange(size // 8)
        odd = max(at - 4, 4 if size >= 12 else 0)  # not aligned, if there is room
        if size >= 16 and r.random() < 0.3:
            return self.somewhere(size)
        return r.choice(
            [
                ["lock *(u64 *)(r0 + %d) += r6" % at],
                ["lock *(u32 *)(r0 + %d) += r7" % (at + 4)],
                ["r7 = *(u64 *)(r0 + %d)" % at],
                ["*(u16 *)(r0 + %d) = r6" % (at + 3)],
                ["r7 = atomic_fetch_xor((u64 *)(r0 + %d), r7)" % at],
                ["r7 = xchg((u32 *)(r0 + %d), r7)" % at],
                ["r1 = *(u64 *)(r0 + %d)" % at, "r1 += r6", "*(u64 *)(r0 + %d) = r1" % at],
                ["r1 = r0", "r1 += %d" % at, "r2 = r%d" % r.choice([6, 7]), "call %d" % r.randrange(525, 529), *self.fresh()],
                ["r1 = *(u32 *)(r0 + %d)" % at, "w1 -= 5", "*(u32 *)(r0 + %d) = r1" % at, "r6 = r1"],
                ["r6 = 3", "r1 = *(u64 *)(r0 + %d)" % at, "r6 += r1", "*(u64 *)(r0 + %d) = r6" % at],
                ["r1 = *(u64 *)(r0 + %d)" % odd, "r1 += r7", "*(u64 *)(r0 + %d) = r1" % odd],
                self.sum_of(at, size),
            ]
        )

    def somewhere(self, size):
        """At a place of the value that is not known, at a multiple of 1, 2, 4 or 8."""
        r, step = self.random, self.random.choice([1, 2, 4, 8])
        at = r.randrange(0, (size - 16) // step + 1) * step
        index = r.choice(
            [
                ["r1 = r%d" % self.operand(), "r1 &= %d" % (8 - step)],
                ["w1 = w%d" % self.operand(), "w1 &= %d" % (8 // step - 1), "r1 *= %d" % step],
                ["r1 = r%d" % self.operand(), "r1 &= %d" % (8 // step - 1), "r1 <<= %d" % (31 + step.bit_length()), "r1 >>= 32"],
            ]
        )
        if step == 8:
            index[1:] = ["r1 &= 8"] if size >= at + 24 else ["r1 = 8"]
        return (
            index
            + ["r0 += r1"]
            + r.choice(
                [
                    ["r1 = *(u64 *)(r0 + %d)" % at, "r1 += r6", "*(u64 *)(r0 + %d) = r1" % at],
                    ["r1 = *(u32 *)(r0 + %d)" % at, "w1 += 9", "*(u32 *)(r0 + %d) = r1" % at, "r7 ^= r1"],
                    ["*(u%d *)(r0 + %d) = r6" % (r.choice([8, 16, 32, 64]), at)],
                    ["r7 = *(s%d *)(r0 + %d)" % (r.choice([8, 16, 32]), at)],
                    ["r6 = *(u64 *)(r0 + %d)" % at],
                ]
                + ([["r7 = atomic_fetch_add((u64 *)(r0 + %d), r7)" % at], ["lock *(u32 *)(r0 + %d) ^= r7" % (at + 4)]] if step == 8 else [])
            )
        )

    def sum_of(self, at, size):
        """A member is added to, as in `*v += x`; but the sum goes elsewhere, or the value's half, or is looked at."""
        r, end = self.random, self.label()
        out = ["r1 = *(u64 *)(r0 + %d)" % at] + r.choice([[], ["r7 ^= 77"]]) + [r.choice(["r1 += r6", "r1 -= 5", "w1 += w6"])]
        return out + r.choice(
            [
                ["*(u64 *)(r10 - 16) = r1"],
                ["*(u64 *)(r0 + %d) = r1" % (size // 8 * 8 - 8 - at)],
                ["*(u32 *)(r0 + %d) = r1" % at],
                ["*(u64 *)(r0 + %d) = r7" % at, "r7 = r1"],
                ["lock *(u64 *)(r0 + %d) += r1" % at],
                ["r7 ^= r1"],
                ["if r1 > 10 goto %s" % end, "r7 = r1", end + ":"],
                ["if r1 s< r7 goto %s" % end, "*(u64 *)(r0 + %d) = r1" % at, end + ":"],
                ["if r6 == r7 goto %s" % end, "*(u64 *)(r0 + %d) = r1" % at, end + ":", "r6 = r1"],
            ]
        )

    def lookup(self, index, size):
        end = self.label()
        out = ["r2 = r10", "r2 += %d" % KEY, "r1 = map[%d] ll" % index, "call 1", "if r0 == 0 goto %s" % end]
        return out + self.value_operation(size) + [end + ":", "r0 = r6"] + self.fresh()

    def flags(self):
        if self.random.random() < 0.5:
            return ["r4 = %d" % self.random.randrange(4)]
        return ["r4 = r%d" % self.operand(), "r4 &= 3"]

    def update(self, index, size):
        """From the data, or from what was filled for it."""
        out = self.flags()  # first: it reads r0, r6 or r7
        if size <= 64:
            out += self.source(3, size)
        else:
            out = self.fill_large() + out + ["r3 = r10", "r3 += %d" % LARGE]
        return out + ["r2 = r10", "r2 += %d" % KEY, "r1 = map[%d] ll" % index, "call 2"] + self.result()

    def fill_large(self):
        register = self.operand()
        return ["*(u64 *)(r10 - %d) = r%d" % (-LARGE - 8 * i, register) for i in range(17)] + [
            "*(u8 *)(r10 - %d) = %d" % (-LARGE - i, i) for i in range(0, 136, 27)
        ]

    def hash_sizes(self, number):
        return [int(n) for n in self.hashes[number].split(":")[1:3]]

    def hash(self, number=None):
        number = self.random.randrange(2) if number is None else number
        key, value = self.hash_sizes(number)
        index, kind = HASH + number, self.random.random()
        out = self.key(key)
        if kind < 0.4:
            return out + self.update(index, value)
        if kind < 0.75:
            return out + self.lookup(index, value)
        return out + ["r2 = r10", "r2 += %d" % KEY, "r1 = map[%d] ll" % index, "call 3"] + self.result()

    def thread_value(self):
        out = ["*(u32 *)(r10 - %d) = %d" % (-KEY, self.random.randrange(3))]
        if self.random.random() < 0.3:
            out = ["r1 = r%d" % self.operand(), "r1 &= 3", "*(u32 *)(r10 - %d) = r1" % -KEY]
        if self.random.random() < 0.3:
            return out + self.update(THREADS, 8)
        return out + self.lookup(THREADS, 8)

    def output(self):
        """A record at once: from the data or from a large place, of a known size or not."""
        r, kind = self.random, self.random.random()
        if kind < 0.3:
            out = self.fill_large() + ["r2 = r10", "r2 += %d" % LARGE, "r3 = %d" % r.choice(LARGE_SIZES)]
        elif kind < 0.75:
            size = r.choice(OUTPUT_SIZES)
            out = self.source(2, size) + ["r3 = %d" % size]
        else:
            out = ["r3 = r%d" % self.operand(), "r3 &= %d" % r.choice([15, 31, 56, 63]), "r2 = r10", "r2 += -64"]
        if r.random() < 0.5:
            return out + ["r1 = map[%d] ll" % RING, "r4 = 0", "call 130"] + self.result()
        return out + ["r4 = r2", "r5 = r3", "r1 = r9", "r2 = map[%d] ll" % RING, "r3 = -1", "call 25"] + self.result()

    def record(self):
        r, end, size = self.random, self.label(), self.random.choice([1, 4, 7, 8, 16, 24, 40, 64, 72])
        out = ["r1 = map[%d] ll" % RING, "r2 = %d" % size, "r3 = 0", "call 131", "if r0 == 0 goto %s" % end]
        out += ["*(u64 *)(r0 + %d) = r%d" % (at, r.choice([6, 7])) for at in range(0, size - 7, 8)]
        out += ["*(u8 *)(r0 + %d) = r%d" % (at, r.choice([6, 7])) for at in range(size & ~7, size)]
        if size >= 16 and r.random() < 0.5:
            out += self.use_record(size)
        if size >= 8:
            out += r.choice([[], ["r7 = *(u32 *)(r0 + 4)"], ["*(u16 *)(r0 + %d) = 771" % (size - 3)]])
        return out + ["r1 = r0", "r2 = 0", "call %d" % r.choice([132, 132, 132, 133]), end + ":", "r0 = r6"] + self.fresh()

    def use_record(self, size):
        """Helpers read and write the record that r0 points to."""
        r, number = self.random, self.random.randrange(2)
        kept = "*(u64 *)(r10 - %d)" % -KEPT
        out = [kept + " = r0", "r0 = r7"]
        key, value = self.hash_sizes(number)
        if r.random() < 0.3:
            out += ["r1 = " + kept, "r1 += %d" % r.randrange(size - 8), "r2 = 8", "call 16"]
        elif value <= size and r.random() < 0.5:
            out += self.key(key) + ["r3 = " + kept, "r4 = 0", "r2 = r10", "r2 += %d" % KEY]
            out += ["r1 = map[%d] ll" % (HASH + number), "call 2"]
        else:
            out += ["r2 = " + kept, "r3 = %d" % size, "r1 = map[%d] ll" % RING, "r4 = 0", "call 130"]
        return out + ["r6 ^= r0", "r0 = " + kept, kept + " = 0"]

    def text(self):
        """A text of TEXTS at r10 + LARGE. Returns its size."""
        text = self.random.choice(TEXTS).encode() + b"\0"
        padded = text.ljust(len(text) + 7 & ~7, b"\0")
        out = []
        for i in range(0, len(padded), 8):
            out += ["r1 = 0x%x ll" % int.from_bytes(padded[i : i + 8], "little"), "*(u64 *)(r10 - %d) = r1" % (-LARGE - i)]
        return out, len(text)

    def print(self):
        r, kind = self.random, self.random.random()
        if kind < 0.3:  # what the data happens to be
            bound = r.choice([["r2 = %d" % r.randrange(65)], ["r2 = r%d" % self.operand(), "r2 &= 63"]])
            return bound + ["r1 = r10", "r1 += -64", "r3 = r6", "r4 = r7", "r5 = 5", "call 6"] + self.result()
        out, size = self.text()
        text = ["r1 = r10", "r1 += %d" % LARGE]
        if kind < 0.4:
            return out + text + ["call 501"] + self.result()
        if kind < 0.7:
            return ["r3 = r0"] + out + text + ["r4 = r7", "r5 = r6", "r2 = %d" % r.randrange(1, size + 1), "call 6"] + self.result()
        out += text + ["r2 = %d" % size, "r3 = r10", "r3 += -64", "r4 = %d" % r.choice([0, 8, 12, 24, 64])]
        return out + ["call 177"] + self.result()

    def process(self):
        size = self.random.choice([1, 3, 8, 15, 16, 17, 24])
        return self.random.choice(
            [
                ["call 14"] + self.result(),
                ["call 512"] + self.result(),
                ["call 506"] + self.result(),
                ["r1 = r10", "r1 += -%d" % self.random.randrange(size, 65), "r2 = %d" % size, "call 16"] + self.result(),
            ]
        )

    def arithmetic_helper(self):
        """Helpers of numbers; and of lanes, where a thread is alone on any driver."""
        r = self.random
        out = ["r1 = r%d" % self.operand(), "r2 = r%d" % self.operand(), "r3 = %d" % r.randrange(7)]
        if r.random() < 0.3:
            out[2] = "r3 = r%d" % self.operand()
        if self.threads == 1 and r.random() < 0.5:
            if r.random() < 0.5:
                out += ["r2 &= 31"]
            return out + ["call %d" % r.randrange(514, 525)] + self.result()
        kind = r.choice([530, 531, 531, 531, 532, 533])
        if kind in (531, 533):
            out += ["r2 = %d" % r.randrange(7)] if r.random() < 0.7 else ["r2 &= 7"]
        return out + ["call %d" % kind] + self.result()

    def helper(self):
        kinds = [
            self.hash,
            self.hash,
            self.hash,
            self.map,
            self.thread_value,
            self.output,
            self.record,
            self.print,
            self.process,
            self.arithmetic_helper,
            self.arithmetic_helper,
        ]
        return self.random.choice(kinds)()

    def helpers(self):
        """Each map is used; then some helpers again and again, so that maps and rings fill up."""
        r, start = self.random, self.label()
        out = self.hash(0) + self.hash(1) + self.thread_value() + self.output() + self.print() + self.process() + self.arithmetic_helper()
        out += ["r8 = %d" % (2 if self.threads > 1 else r.choice([3, 10, 30, 150])), start + ":", "r6 *= 31", "r6 += r8"]
        pool = r.choice(
            [[self.hash, self.hash, self.map], [self.output, self.output, self.record], [self.print, self.output], [self.arithmetic_helper], [self.helper]]
        )
        for _ in range(r.randrange(2, 6)):
            out += r.choice(pool)()
        return out + ["r8 -= 1", "if r8 != 0 goto %s" % start]
