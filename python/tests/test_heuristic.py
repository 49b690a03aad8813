"""The choice of a kernel, as rows. Needs neither torch nor a GPU."""
import collections
import importlib
import itertools
import json
import math
import pathlib
import random
import subprocess
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from choices import heuristic  # noqa: E402

h = heuristic()
varlen = importlib.import_module("._tokens", h.__package__)
_path = pathlib.Path(h.__file__)

# B, Hq, Hkv, Sq, Sk, D, causal, scales of the whole head -> file
ROWS = [
    ((1, 8, 8, 512, 512, 64, False, True), "tiny"),
    ((2, 8, 8, 256, 256, 64, True, True), "tiny"),
    ((1, 8, 8, 512, 512, 128, False, True), "tiny"),
    ((2, 8, 8, 2048, 2048, 64, False, True), "forward_f16"),
    ((2, 8, 8, 2048, 2048, 64, True, True), "forward_f16"),
    ((2, 8, 8, 2048, 2048, 64, False, True, False, True), "forward"),   # with log-sum-exp
    ((2, 8, 8, 2048, 2048, 64, False, False), "forward"),
    ((2, 8, 8, 2048, 2048, 64, True, True, True), "forward_f16"),
    ((2, 8, 8, 2048, 2048, 128, False, True), "forward_e4m3"),
    ((2, 8, 8, 2048, 2048, 128, True, True), "forward_e4m3"),
    ((2, 8, 8, 2048, 2048, 128, False, True, False, True), "forward"),   # with log-sum-exp
    ((1, 8, 8, 512, 512, 64, False, True, False, True), "tiny"),
    ((8, 64, 2, 1, 16384, 64, False, True, False, True), "decode"),    # 32 packed rows: 21.3 us, by few.cuh 21.8
    ((16, 32, 8, 16, 8192, 128, True, True, False, True), "forward"),   # 64, over a large cache: packed
    ((8, 32, 8, 64, 4096, 128, True, True, False, True), "forward"),
    ((1, 32, 8, 64, 4096, 128, True, True, False, True), "forward"),   # 32 row tiles of one head would leave SMs idle: packed, and their keys shared out
    ((1, 8, 8, 257, 4096, 128, True, False), "forward_e4m3"),
    ((4, 16, 16, 4096, 4096, 128, True, True, False, True), "forward"),
    ((1, 8, 8, 16384, 16384, 256, False, True), "forward_e4m3"),
    ((1, 8, 8, 16384, 16384, 256, False, True, False, True), "forward"),
    ((1, 8, 8, 16384, 16384, 256, False, False), "forward"),
    ((4, 8, 8, 1000, 4096, 256, False, True), "forward"),   # V is read too seldom to be transposed before
    ((4, 8, 8, 4096, 4096, 256, True, True), "forward_e4m3"),
    ((4, 8, 8, 1024, 1024, 256, True, True), "forward"),
    ((4, 32, 8, 1024, 4096, 256, True, True), "forward_e4m3"),
    ((1, 32, 8, 1, 131072, 128, False, True), "decode"),
    ((16, 32, 8, 4, 8192, 128, True, False), "forward_e4m3"),   # 16 packed rows, and a key head to each SM
    ((16, 32, 8, 2, 8192, 128, True, True), "decode"),
    ((8, 64, 2, 1, 16384, 128, False, False), "forward_e4m3"),   # 33.1 us, by decode.cu 34.1
    ((4, 16, 16, 4096, 4096, 128, False, False), "forward_e4m3"),  # scales by block of tokens
    ((4, 16, 16, 4096, 4096, 128, False, False, False, True), "forward"),
    ((1, 8, 8, 512, 512, 64, False, False), "forward"),   # 8.3 us, by split.cu 9.1
    ((4, 16, 16, 4096, 4096, 128, False, True, True), "forward_e4m3"),
    ((4, 16, 16, 4096, 4096, 128, False, True, True, True), "forward"),
    ((4, 16, 16, 4096, 4096, 256, False, True, True), "forward_e4m3"), ((4, 16, 16, 600, 600, 256, False, True, True), "forward"),
]


class Import(unittest.TestCase):
    def test_without_torch_it_says_what_is_missing(self):
        package = str(_path.parents[2])
        said = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {package!r}); import warpsmith; import warpsmith.attention"],
                              capture_output=True, text=True)
        self.assertEqual(said.returncode, 1)
        self.assertIn("ImportError: warpsmith.attention works on PyTorch's tensors", said.stderr)


FEW = ("WS_FEW", 1)
LAYOUT = lambda c: [d for d in c.defines if d[0] in ("WS_PACKED", "WS_BLOCKS")]


def decided(c, s, used, own=False):
    """How many CTAs share a row tile's keys, as few_decide of few.cuh decides for these lengths where all sequences have one number. own: each sequence's number where each has its own, or None."""
    if c.tiles_per_worker == 1:
        return None if own else 1
    step = 256 if c.file == "forward_e4m3" and s.D == 128 and s.plain and not s.causal else 128
    steps = lambda n: h.ceil_div(n, step)
    longest, total = max(map(steps, used)), sum(max(1, steps(n - s.Sq // 2 if s.causal else n)) for n in used)
    def cycles(ways, shares=None):
        units, several = c.row_tiles * s.Hkv, c.row_tiles * s.Hkv * s.B * ways > c.grid[0]
        high = 16 if several and ways == 1 else 0
        of_step, of_rows = (c.tiles_per_unit >> high & 0xFFFF) * step // 128, (c.total_tiles >> high & 0xFFFF) + ((ways > 1) + (ways > 4) + (ways > 16)) * c.section
        share = h.ceil_div(longest, ways) * of_step + of_rows
        return max(share, units * (total * of_step + (shares or s.B * ways) * of_rows) / c.grid[0] + 0.45 * share) if several or shares else share
    ways = range(1, c.tiles_per_worker + 1)
    if not own:
        return min(ways, key=cycles)
    about = lambda n: total / longest * n + s.B / 2
    if s.B == 1 or min(1.03 * cycles(n, about(n)) + 900 + 30 * s.B for n in ways[1:]) > min(map(cycles, ways)):
        return None
    shares = lambda n: [h.ceil_div(max(1, steps(x)), h.ceil_div(longest, n)) for x in used]
    return shares(min(ways[1:], key=lambda n: cycles(n, sum(shares(n)))))


def lengths_of(B, longest, total):
    """Lengths of which the longest and the sum are known."""
    return [longest] + [max(1, (total - longest) // (B - 1))] * (B - 1) if B > 1 else [longest]


class Choice(unittest.TestCase):
    def test_rows(self):
        for shape, file in ROWS:
            with self.subTest(shape=shape):
                self.assertEqual(h.choose(h.Shape(*shape)).file, file)

    def test_scales_by_block_and_packed_values_change_the_instance_alone(self):
        for D, wgs, causal, made in itertools.product((64, 128, 256), (2, 3), (False, True), (False, True)):
            if D == 64 and made:
                continue
            of = lambda made=made, **named: h.choose_forward(h.Shape(4, 16, 16, 4096, 4096, D, causal, lse=True, **named), wgs, made)
            plain, blocks, packed = of(), of(plain=False), of(made=False, packed=True)
            rest = lambda c, *more: [d for d in c.defines if d[0] not in ("WS_BLOCKS", "WS_PACKED", *more)]
            with self.subTest(D=D, wgs=wgs, causal=causal, made=made):
                self.assertEqual((plain.transposes, blocks.transposes, packed.transposes), (made, made, False))
                self.assertEqual(LAYOUT(plain), [("WS_PACKED", 1), ("WS_BLOCKS", 0)] if made else [])
                self.assertEqual(LAYOUT(blocks), [("WS_PACKED" if made else "WS_BLOCKS", 1)])
                self.assertEqual(LAYOUT(packed), [("WS_PACKED", 1)])
                self.assertEqual(rest(blocks), rest(plain))
                self.assertEqual(rest(packed, "WS_TURNS"), rest(plain, "WS_TURNS"))
                self.assertEqual((plain.grid, plain.row_tiles, plain.section), (packed.grid, packed.row_tiles, packed.section))
                self.assertEqual(4 * plain.partial_floats, 4 * 16 * D * 4096 if made else 0, "V^T")
                if (D, wgs) != (256, 3):
                    self.assertLessEqual(packed.shared_bytes, 232448)

    def test_queries_of_16_bits_change_the_instance_and_at_256_dimensions_the_slots(self):
        for D, S, file in ((64, 4096, "forward_f16"), (128, 4096, "forward_e4m3"), (256, 4096, "forward_e4m3"), (256, 700, "forward")):
            for causal in (False, True):
                codes, wide = (h.choose(h.Shape(4, 16, 16, S, S, D, causal, packed=True, wide=w)) for w in (False, True))
                self.assertEqual((wide.file, [d for d in wide.defines if d not in codes.defines]), (file, [("WS_WIDEQ", 1)]))
                self.assertEqual((wide.grid, wide.row_tiles, wide.boxes), (codes.grid, codes.row_tiles, codes.boxes))
                if wide.units == codes.units:   # three consumers draw codes alone
                    self.assertEqual(wide.section, codes.section)
                self.assertEqual(wide.shared_bytes, codes.shared_bytes, "at D 256 a slot more of K for one of Q")
                self.assertLessEqual(wide.shared_bytes, 232448)

    def test_the_log_sum_exp_changes_the_kernel(self):
        """At 64, weights that are linear between powers of two give right outputs, and wrong log-sum-exps; at 128, and at 256 over V^T that is made before, the fastest kernel makes none."""
        without = set()
        for D, Sq, causal, (plain, packed) in itertools.product((64, 128, 256), (1, 40, 300, 2048, 5000), (False, True), ((True, False), (False, False), (True, True))):
            of = lambda lse: h.choose(h.Shape(2, 16, 8, Sq, 4096, D, causal, plain, packed, lse))
            with self.subTest(D=D, Sq=Sq, causal=causal, plain=plain, packed=packed):
                self.assertNotIn(of(True).file, ("forward_f16", "forward_e4m3"))
                if D == 64 and not plain:
                    self.assertNotEqual(of(False).file, "forward_f16", "its weights are for scales of whole heads")
                without.add((of(False).file, D))
        self.assertLessEqual({("forward_f16", 64), ("forward_e4m3", 128), ("forward_e4m3", 256)}, without)

    def test_two_or_four_consumers_at_64_dimensions(self):
        """Whichever leaves the busiest SM less to do; causal row tiles differ in length and are shared out."""
        # B, H, Sq, causal, SMs -> consumers, CTAs, row tiles
        rows = [((1, 132, 128, False, 132), (2, 132, 1)), ((1, 132, 129, False, 132), (4, 132, 1)), ((1, 132, 256, False, 132), (4, 132, 1)), ((1, 132, 257, False, 132), (4, 132, 2)),
                ((1, 132, 385, False, 132), (4, 132, 2)), ((4, 16, 4096, False, 132), (4, 132, 16)), ((2, 8, 2048, False, 132), (4, 128, 8)), ((1, 8, 2048, False, 132), (2, 128, 16)),
                ((2, 8, 2048, True, 132), (2, 132, 16)), ((2, 16, 1024, True, 132), (2, 132, 8)), ((8, 16, 512, True, 132), (4, 132, 2)), ((4, 16, 4096, True, 132), (4, 132, 16)),
                ((3, 20, 1536, True, 132), (4, 132, 6)), ((2, 8, 2048, True, 32), (4, 32, 8))]
        for (B, H, Sq, causal, sms), want in rows:
            c = h.choose_many(h.Shape(B, H, H, Sq, Sq, 64, causal), sms)
            with self.subTest(B=B, H=H, Sq=Sq, causal=causal, sms=sms):
                self.assertEqual((dict(c.defines)["WS_WGS"], c.grid[0], c.row_tiles), want)
                self.assertEqual(c.block, 128 * (want[0] + 1))

    def test_memory_and_names_of_the_kernel_with_weights_in_f16(self):
        for wgs, shared in ((2, 134144), (4, 150528)):
            for causal in (False, True):
                s = h.Shape(2, 8, 8, 3000, 3000, 64, causal)
                c, traced = h.choose_forward_f16(s, wgs), h.choose_forward_f16(s, wgs, trace=1)
                self.assertEqual((c.name, c.shared_bytes, c.boxes, c.partial_floats), (f"forward_f16_d64_wgs{wgs}_causal{int(causal)}", shared, (64, 128), 0))
                self.assertLessEqual(c.shared_bytes, 232448)
                self.assertEqual((traced.name, traced.partial_floats), (c.name + "_trace1", c.grid[0] * wgs * 8))
                self.assertEqual(c.section, h.choose_forward(s, wgs).section)
                packed = h.choose_forward_f16(h.Shape(2, 8, 8, 3000, 3000, 64, causal, packed=True), wgs)
                self.assertEqual((packed.name, packed.shared_bytes), (c.name + "_packed1", {2: 139648, 4: 156032}[wgs]))

    def test_two_or_three_consumers_at_128_dimensions(self):
        """Whichever leaves the busiest SM less to do."""
        # B, H, Sq, Sk, causal, SMs -> consumers, CTAs, row tiles: of scales of heads, of scales by block, packed
        rows = [((1, 132, 128, 128, False, 132), (2, 132, 1)), ((1, 132, 129, 128, False, 132), (3, 132, 1)), ((1, 132, 192, 128, False, 132), (3, 132, 1)),
                ((1, 132, 193, 128, False, 132), (2, 132, 2)), ((2, 8, 2048, 2048, False, 132), (2, 132, 16)), ((1, 8, 2048, 2048, False, 132), (2, 128, 16)), ((2, 8, 2000, 2000, True, 132), (2, 132, 16)),
                ((2, 16, 1500, 1500, False, 132), (3, 132, 8)), ((2, 16, 1500, 1500, True, 132), (3, 132, 8)), ((4, 16, 4096, 4096, True, 132), (3, 132, 22))]
        for (B, H, Sq, Sk, causal, sms), want in rows:
            for scales in (dict(), dict(plain=False), dict(packed=True)):
                c = h.choose_many(h.Shape(B, H, H, Sq, Sk, 128, causal, **scales), sms)
                with self.subTest(B=B, H=H, Sq=Sq, Sk=Sk, causal=causal, sms=sms, scales=scales):
                    self.assertEqual((dict(c.defines)["WS_WGS"], c.grid[0], c.row_tiles), want)
                    self.assertEqual(c.block, 128 * (want[0] + 1))

    def test_what_the_busiest_sm_has_to_do(self):
        """The sum over row tiles where they are long or many; else the longest of them."""
        # H, Sq, Sk, causal, consumers, SMs -> tiles of keys, row tiles
        rows = [((8, 1024, 1000, False, 2, 132), (8, 1)), ((8, 1024, 1000, False, 2, 60), (16, 2)), ((8, 1024, 1024, True, 2, 132), (8, 1)), ((8, 1024, 1024, True, 2, 32), (9, 2)),
                ((8, 1024, 1024, True, 3, 132), (8, 1)), ((1, 300, 10, True, 2, 132), (1, 1)), ((4, 300, 10, True, 2, 1), (4, 12)), ((1, 10, 300, True, 3, 1), (3, 1))]
        for (H, Sq, Sk, causal, wgs, sms), want in rows:
            self.assertEqual(h.busiest(h.Shape(1, H, H, Sq, Sk, 128, causal), wgs, sms), want, (H, Sq, Sk, causal, wgs, sms))

    def test_what_is_shared_out_or_drawn_is_as_one_by_one(self):
        for seed in range(200):
            draw = random.Random(seed)
            heads, sms, of_keys, of_rows = draw.randint(1, 40), draw.randint(1, 20), draw.randint(1, 3), draw.randint(0, 3)
            lengths = sorted((draw.randint(0, 30) for _ in range(draw.randint(1, 12))), reverse=True)
            section = draw.randint(1, heads)
            order = [of_keys * length + of_rows for first in range(0, heads, section) for length in lengths for _ in range(min(section, heads - first))]
            have, ends = [0] * sms, [0] * sms
            for i, takes in enumerate(order):
                have[sms - 1 - i % sms if i // sms % 2 else i % sms] += takes
                ends[ends.index(min(ends))] += takes
            self.assertEqual(h.shared_out(lengths, heads, section, sms, of_keys, of_rows), max(have), seed)
            self.assertEqual(h.drawn_out(lengths, heads, section, sms, of_keys, of_rows), max(ends), seed)

    def test_consumers_without_rows_take_less(self):
        """Of a head's last row tile: half of the share of those that have none."""
        for S, wgs, first in ((4096, 3, 32 - 32 * 2 // 6), (4096, 2, 32), (300, 4, 3 - 3 * 3 // 8), (1100, 4, 9 - 9 * 2 // 8), (192, 3, 2)):
            s = h.Shape(1, 8, 8, S, S, 128, True)
            plain, passes = h.lengths_of(s, wgs), h.lengths_of(s, wgs, True)
            self.assertEqual((passes[0], passes[1:]), (first, plain[1:]), (S, wgs))

    def test_sections_that_are_drawn(self):
        """Of whole groups of heads and a round or more, the last one no smaller than three quarters; and no SM has much more than the others."""
        for B, Hkv, group, S, D in itertools.product((1, 3, 8), (1, 5, 16), (1, 4), (700, 2048, 5000), (128, 256)):
            s = h.Shape(B, Hkv * group, Hkv, S, S, D, True)
            cycles, heads = h.drawn_sections(s, 2, True)
            row_tiles, all_heads = h.ceil_div(S, 128), B * Hkv * group
            with self.subTest(s=s, heads=heads):
                self.assertEqual(heads % group, 0)
                self.assertTrue(heads == all_heads or heads * row_tiles >= 118)
                self.assertGreaterEqual(4 * (all_heads - (h.ceil_div(all_heads, heads) - 1) * heads), 3 * heads)
                of_keys, of_rows = h.many_cycles(s, "forward_e4m3", 2, True, False)
                lengths = h.lengths_of(s, 2, True)
                mean = sum(of_keys * n + of_rows for n in lengths) * all_heads / 132
                self.assertGreaterEqual(cycles, int(mean))
                self.assertLessEqual(cycles, 1.06 * (mean + of_keys * max(lengths) + of_rows))

    def test_heads_come_in_sections_that_leave_no_sm_with_more_than_the_others(self):
        # B, Hq, Hkv, S, D -> heads of a section. Drawn row tiles come by a round or a few (D 64: 64), others as they share out evenly, few heads as one.
        rows = [((4, 8, 8, 4096, 256), 4), ((1, 16, 16, 16384, 128), 8), ((16, 16, 16, 1024, 128), 32), ((8, 32, 32, 2048, 64), 64), ((8, 16, 16, 4096, 256), 8), ((16, 8, 8, 1024, 256), 33),
                ((4, 16, 16, 4096, 128), 11), ((4, 40, 8, 3000, 128), 20), ((1, 1, 1, 300, 64), 1)]
        for (B, Hq, Hkv, S, D), want in rows:
            c = h.choose_many(h.Shape(B, Hq, Hkv, S, S, D, True))
            self.assertEqual(c.section, want, (B, Hq, Hkv, S, D))
            self.assertEqual(h.choose_many(h.Shape(B, Hq, Hkv, S, S, D, False)).section, 1)
        for B, H, S in itertools.product((2, 5, 8, 16, 33), (8, 12, 16, 32), (512, 1000, 2048, 3000, 4096)):
            s = h.Shape(B, H, H, S, S, 256, True)
            c, lengths = h.choose_forward(s), h.lengths_of(s, 2)
            if len(lengths) * H * B >= 8 * 132:
                even = sum(2 * n + 3 for n in lengths) * H * B / 132
                self.assertLess(h.shared_out(lengths, H * B, c.section, 132, 2, 3), 1.1 * even, (B, H, S, c.section))

    def test_sections_that_would_take_long_to_look_at_are_not(self):
        calls, real = [], h.shared_out
        h.shared_out = lambda lengths, heads, section, *rest: calls.append(h.ceil_div(heads, section) * len(lengths) + h.ceil_div(len(lengths) * heads, 132)) or real(lengths, heads, section, *rest)
        try:
            for B, H, S, want in ((64, 64, 1 << 20, 64 * 64), (4096, 64, 200, 4096 * 64), (64, 8, 4096, 24)):
                self.assertEqual(h.choose_forward(h.Shape(B, H, H, S, S, 256, True)).section, want)
        finally:
            h.shared_out = real
        self.assertGreater(len(calls), 0)
        self.assertLessEqual(max(calls), h.MOST_PIECES)

    def test_memory_and_names_of_the_kernel_with_weights_made_as_codes(self):
        for wgs, plain, packed in ((2, 201024, 168320), (3, 217408, 184704)):
            for causal in (False, True):
                of = lambda trace=0, **more: h.choose_forward_e4m3(h.Shape(2, 8, 8, 2900, 2900, 128, causal, **more), wgs, trace=trace, by_one=bool(more))
                c, name = of(), f"forward_e4m3_d128_wgs{wgs}_causal{int(causal)}"
                self.assertEqual((c.name, c.shared_bytes, c.boxes, c.partial_floats), (name, plain, (64, 128), 0))
                self.assertEqual((of(plain=False).name, of(plain=False).shared_bytes), (name + "_blocks1", plain + 64))
                for more in (dict(packed=True), dict(packed=True, plain=False)):   # which take scales by block at any time
                    self.assertEqual((of(**more).name, of(**more).shared_bytes), (name + "_packed1_even1", packed))
                self.assertLessEqual(max(plain + 64, packed), 232448)
                traced = of(trace=1)
                self.assertEqual((traced.name, traced.partial_floats), (name + "_trace1", traced.grid[0] * wgs * 8))

    def test_values_are_transposed_before_where_many_row_tiles_read_them(self):
        # B, Hq, Hkv, Sq, Sk, D, causal, plain, lse -> whether; of those that were timed the faster, or within 2%
        rows = [((1, 32, 8, 385, 1000, 256, False), False), ((4, 8, 8, 3072, 1000, 128, False), False), ((1, 8, 8, 2944, 8192, 256, True), True), ((4, 8, 8, 2944, 4096, 256, True), True),
                ((1, 8, 8, 4096, 3968, 256, True), True), ((4, 8, 8, 1024, 1024, 256, True), False), ((8, 16, 16, 2048, 2048, 256, False, True, True), False),
                ((4, 16, 16, 4096, 4096, 128, False), True), ((4, 16, 16, 4096, 4096, 128, True), True), ((1, 16, 16, 16384, 16384, 128, False), True), ((1, 16, 16, 16384, 16384, 128, True), True),
                ((4, 8, 8, 4096, 4096, 256, False), True), ((4, 8, 8, 4096, 4096, 256, True), True), ((1, 8, 8, 16384, 16384, 256, True), True), ((16, 16, 16, 1024, 1024, 128, True), False),
                ((1, 8, 8, 16384, 16384, 64, False), False), ((9000, 8, 8, 4096, 100, 256, False), False), ((64, 8, 8, 8192, 4096, 128, False), True), ((64, 8, 8, 8192, 4097, 128, False), False)]
        for (B, Hq, Hkv, Sq, Sk, D, causal, *rest), want in rows:
            plain, lse = (rest[0] if rest else True), (rest[1] if len(rest) > 1 else False)
            s = h.Shape(B, Hq, Hkv, Sq, Sk, D, causal, plain, lse=lse)
            c = h.choose(s)
            launch, before = h.transposition(s, c), h.transposition(s, h.replace(c, tiles_per_worker=0))
            with self.subTest(s=s):
                self.assertEqual(c.transposes, want)
                self.assertEqual(4 * c.partial_floats, B * Hkv * D * 128 * h.ceil_div(Sk, 128) if want else 0)
                groups, tiles = 256 // D, h.ceil_div(Sk, 128) * B * Hkv
                self.assertEqual((before.name, before.grid, before.block), (f"transpose_d{D}", (min(132, h.ceil_div(tiles, groups)), 1, 1), 320 * groups))
                self.assertLessEqual(before.shared_bytes, 232448)
                self.assertEqual(launch, h.replace(before, grid=(32, 1, 1)) if c.tiles_per_worker else before)
                self.assertFalse(h.choose(h.Shape(B, Hq, Hkv, Sq, Sk, D, causal, packed=True)).transposes)

    def test_the_choice_is_near_the_fastest_of_what_was_measured(self):
        """By the journal: what the choice takes of the fastest of all kernels that could run a shape, and of one of two."""
        folder = pathlib.Path(__file__).resolve().parents[2] / "benches" / "results"
        if not folder.exists():
            self.skipTest("not a checkout")
        for day, name, part, least in ((26, "choices", "every", 900), (26, "counters", "every", 1900), (26, "counters", "tests", 600), (26, "fast", "every", 1300), (28, "few-choices", "every", 640)):
            data = json.loads((folder / f"2026-11-{day}-h100-attention-{name}.json").read_text())   # where names still said what forward.cu now decides: _wide1
            of_kind = collections.defaultdict(list)
            for shape, causal, kind, times in data[part]:
                B, heads, Sq, Sk, D = shape.split("x")
                Hq, Hkv = heads.split("-")
                with unittest.mock.patch.object(h, "spread", lambda *_: None):   # nobody had timed it there
                    c = h.choose(h.Shape(*map(int, (B, Hq, Hkv, Sq, Sk, D)), bool(causal), plain=not kind.endswith("blocks"), lse=kind == "lse", fast=kind.startswith("fast")))
                if day < 28:   # decode.cu was another one
                    times = [t for t in times if not data["kernels"][t[0]].startswith("decode")]
                found = [us for i, ways, us in times if data["kernels"][i].replace("_wide1", "") == c.name and ways == c.tiles_per_worker]
                if found:   # else a kernel, or a number of ways, that nobody had timed there
                    of_kind[kind].append(found[0] / min(us for _, _, us in times))
            self.assertGreater(sum(map(len, of_kind.values())), least, (name, part))
            for kind, ratios in of_kind.items():
                with self.subTest(journal=name, part=part, kind=kind):
                    self.assertLess(math.exp(sum(map(math.log, ratios)) / len(ratios)), 1.025)
                    self.assertLess(sum(x > 1.15 for x in ratios) / len(ratios), 0.05)
                    self.assertLess(max(ratios), 1.6)

    def test_stretches_are_chosen_where_they_were_faster(self):
        """By the journal of random calls of at most 16 packed rows: times of what is chosen beside the faster one's of teams (or whatever was chosen before) and stretches."""
        path = pathlib.Path(__file__).resolve().parents[2] / "benches" / "results" / "2026-11-28-h200-attention-stretches.json"
        if not path.exists():
            self.skipTest("not a checkout")
        for kind, least, of_teams in (("dense", 900, 1.02), ("lengths", 1150, 1.06)):
            ratios, teams = [], []
            for (B, Hq, Hkv, Sq, Sk, D, causal), page, _, _, before, spread in json.loads(path.read_text())[kind]:
                s = h.Shape(B, Hq, Hkv, Sq, Sk, D, bool(causal) and Sq > 1)
                c = h.choose_lengths(s, page=page or None) if kind == "lengths" else h.choose(s)
                ratios.append((spread if ("WS_SPREAD", 1) in c.defines else before) / min(spread, before))
                teams.append(before / min(spread, before))
            self.assertGreater(len(ratios), least)
            mean = lambda x: math.exp(sum(map(math.log, x)) / len(x))
            self.assertLess(mean(ratios), 1.011, kind)
            self.assertGreater(mean(teams), of_teams, kind)

    def test_shares_of_uneven_lengths(self):
        """By the journal of random calls of 17 to 256 packed rows and lengths on the device: as many CTAs of a row tile as were near the fastest, and many more where few sequences are long; counters and parts have limits."""
        path = pathlib.Path(__file__).resolve().parents[2] / "benches" / "results" / "2026-11-28-h200-attention-ways.json"
        if path.exists():
            ratios, before = [], []
            for (B, Hq, Hkv, Sq, Sk, D, causal), page, mean_length, _, name, us_before, ways in json.loads(path.read_text())["calls"]:
                s = h.Shape(B, Hq, Hkv, Sq, Sk, D, bool(causal))
                c = h.choose_lengths(s, page=page or None)
                ways = {int(n): us for n, us in ways}
                if FEW in c.defines and name.startswith("forward"):
                    n = decided(c, s, lengths_of(B, Sk if B > 1 else mean_length, B * mean_length))
                    near = min(ways, key=lambda x: abs(x - n))
                    if abs(near - n) <= max(1, n // 8):
                        fastest = min(us_before, *ways.values())
                        ratios.append(ways[near] / fastest)
                        before.append(us_before / fastest)
            mean = lambda x: math.exp(sum(map(math.log, x)) / len(x))
            self.assertGreater(len(ratios), 650)
            self.assertLess(mean(ratios), 1.016)
            self.assertGreater(mean(before), 1.045)
        def ways(B, Sk, Sq=8, used=None):
            s = h.Shape(B, 32, 8, Sq, Sk, 128, True)
            return decided(h.choose_lengths(s), s, used or [Sk] * B)
        self.assertGreaterEqual(ways(9, 20_000), 3)   # 72 row tiles of a key head, 1 before: 131 us, by four 57
        self.assertEqual(ways(16, 300), 1)
        self.assertLessEqual(ways(2, 100_000, 32, [500, 300]), 4)   # whatever the capacity is
        self.assertGreaterEqual(ways(2, 100_000, 32, [500, 100_000]), 12)
        def own(B, Hkv, Sk, D, used):
            s = h.Shape(B, 4 * Hkv, Hkv, 16, Sk, D, True)
            return decided(h.choose_lengths(s), s, used, own=True)
        for D in (64, 128, 256):   # one long sequence beside short ones has more CTAs, and only it; alike they have one number
            long, *others = own(16, 2, 12800, D, [12800] + [1000] * 15)
            self.assertTrue(long >= 8 and max(others) <= 2, (D, long, others))
            self.assertIsNone(own(16, 2, 12800, D, [12800] * 16))
            self.assertIsNone(own(1, 2, 12800, D, [12800]))
        for B, Hkv, Sq, Sk, D in itertools.product((2, 30, 400), (1, 8, 64), (9, 32), (1000, 200_000), (64, 128, 256)):
            c = h.choose_lengths(h.Shape(B, 8 * Hkv, Hkv, Sq, Sk, D, True))
            with self.subTest(c=c):
                self.assertTrue(1 <= c.tiles_per_worker <= 32 and c.units <= 16384 and c.partial_floats <= h.MOST_PARTS)
                self.assertLessEqual(c.tiles_per_worker * c.row_tiles * Hkv * B, max(c.row_tiles * Hkv * B, h.MOST_SHARES * h.SMS))

    def test_caches_over_v_t(self):
        """Prompts over caches: V^T is made of what is used, where an eighth of the capacity, too, would pay for it."""
        choose = lambda *shape, **more: h.choose_lengths(h.Shape(*shape, True, **more))
        for shape, wgs in (((4, 16, 2, 2048, 32768, 256), 2), ((1, 32, 8, 4096, 32768, 128), 3)):
            c = choose(*shape)
            self.assertEqual((c.transposes, dict(c.defines)["WS_WGS"], c.shared_bytes <= 232448, c.units), (True, wgs, True, 1), shape)
            self.assertEqual(c.partial_floats * 4, shape[0] * shape[2] * shape[4] * shape[5])
            self.assertEqual(h.lengths_transposition(h.Shape(*shape, True), 4 * c.partial_floats, 1).name, f"transpose_d{shape[5]}_lens1")
            for more in (dict(lse=True), dict(plain=False)):
                self.assertFalse(choose(*shape, **more).transposes, (shape, more))
        self.assertFalse(choose(4, 16, 2, 2048, 1 << 20, 256).transposes)   # 2 GB
        self.assertFalse(choose(1, 32, 8, 64, 32768, 256).transposes)   # whose V few row tiles read
        self.assertEqual(choose(4, 10, 2, 2048, 32768, 256).splits, 5)   # five heads to a key head: each its own row tiles

    def test_stretches(self):
        """CTAs are as many for each head, and all of a launch's shared memory, parts and counters are there."""
        for D, rows, B, Hkv, Sk, lengths in itertools.product((64, 128, 256), (1, 8, 9, 16, 17), (1, 7, 300), (1, 5, 8, 132, 133), (1, 3000, 100_000), (False, True)):
            s = h.Shape(B, Hkv * rows, Hkv, 1, Sk, D, False)
            c = h.choose_spread(s, lengths=lengths)
            with self.subTest(s=s, lengths=lengths):
                self.assertEqual(c is None, rows > 16 or Hkv > 132 or D == 256 and rows > 8)
                if c:
                    of_rows, each = dict(c.defines)["WS_ROWS"], c.grid[0] // Hkv
                    self.assertEqual((c.grid[0] % Hkv, c.total_tiles, c.section % 8, c.block), (0, B * Hkv, 0, 288 if lengths and of_rows == 8 and D <= 128 else 256))   # with lengths a warp that finds out who adds
                    self.assertTrue(1 <= each and c.grid[0] <= h.SMS and each <= h.ceil_div(B * c.tiles_per_unit, 8))
                    self.assertEqual(c.units, c.grid[0] * of_rows)
                    self.assertGreaterEqual(c.partial_floats, 2 * c.grid[0] * of_rows * (D + 2))
                    self.assertLessEqual(c.shared_bytes, 232448)
        for B, Sk, page, want in ((2, 131072, None, False), (3, 65536, None, True), (16, 8192, 64, True), (16, 8192, 16, False), (16, 512, None, False)):
            c = h.choose_lengths(h.Shape(B, 32, 8, 1, Sk, 128, False), page=page)
            self.assertEqual(("WS_SPREAD", 1) in c.defines, want, (B, Sk, page))
        for D, rows, want in ((256, 8, "decode"), (256, 9, "forward"), (256, 16, "forward"), (128, 16, "decode"), (64, 16, "decode")):   # at D 256 few.cuh from nine rows on
            self.assertTrue(h.choose_lengths(h.Shape(4, rows * 8, 8, 1, 2048, D, False)).file.startswith(want), (D, rows))
        self.assertEqual(h.choose_lengths(h.Shape(4, 128, 8, 1, 2048, 256, False), page=48).file, "decode")   # whose pages it does not take
        self.assertIsNone(h.choose_spread(h.Shape(65535, 8, 8, 1, 1 << 20, 128, False)))   # tiles are numbered in 31 bits

    def test_teams_over_caches_of_which_little_may_be_used(self):
        """No more CTAs of a team than all of the caches want, no fewer than half of that; half tiles only where each warp has one."""
        for D, B, Hkv, Sk, rows in itertools.product((64, 128, 256), (1, 2, 16), (1, 4, 16), (500, 3000, 20_000), (1, 8)):
            s = h.Shape(B, Hkv * rows, Hkv, 1, Sk, D, False)
            c = h.choose_lengths(s)
            if ("WS_SPREAD", 1) in c.defines or c.file != "decode":
                continue
            whole = h.choose_decode(s).tiles_per_worker
            with self.subTest(s=s):
                self.assertTrue(whole / 2 <= c.tiles_per_worker <= whole)
                keys, of_tile = dict(c.defines)["WS_KEYS"], h.DECODE[D][0]
                self.assertEqual(keys < of_tile, D <= 128 and 2 * h.ceil_div(h.ceil_div(Sk, of_tile), c.tiles_per_worker) <= 8)

    def test_fast_asks_for_linear_weights_where_that_pays(self):
        """Of the kernels that make codes of weights those with linear ones, three consumers of them over V^T where keys are many; no others know the mode."""
        of = lambda c: dict(c.defines)
        for D, S, causal, plain in itertools.product((64, 128, 256), (1, 100, 1024, 4096), (False, True), (True, False)):
            shapes = [h.Shape(4, 16, 16, S, S, D, causal, plain, lse=lse, fast=fast) for lse in (False, True) for fast in (False, True)]
            default, fast, default_lse, fast_lse = map(h.choose, shapes)
            with self.subTest(D=D, S=S, causal=causal, plain=plain):
                self.assertEqual(default_lse, fast_lse)   # sums of linear weights are 2% off
                self.assertNotIn("WS_FAST", of(default))
                self.assertEqual("WS_FAST" in of(fast), fast.file == "forward_e4m3" and (D == 128 or "WS_FEW" not in of(fast)))
                if "WS_FAST" not in of(fast):
                    self.assertEqual(default, fast)
                if D == 64 or S == 1:
                    self.assertEqual(default, fast)
        for causal in (False, True):
            c = h.choose(h.Shape(1, 16, 16, 16384, 16384, 128, causal, fast=True))
            self.assertEqual((of(c)["WS_FAST"], of(c)["WS_WGS"], c.transposes), (1, 3, True))
        for kind, shape in ((1, h.Shape(8, 32, 8, 512, 4096, 128, True, fast=True)), (2, h.Shape(8, 16, 16, 2048, 2048, 128, True, fast=True))):
            c = h.choose_lengths(shape) if kind == 1 else varlen.choose_varlen(shape, 16384, 16384)
            self.assertEqual((c.file, of(c)["WS_FAST"], of(c)["WS_LENS"]), ("forward_e4m3", 1, kind))
        for rows in (16, 128, 129):   # one row tile of a key head's: memory is what takes time
            c = h.choose_few(h.Shape(64, 8, 8, rows, 4096, 128, True, fast=True))[1]
            self.assertEqual("WS_FAST" in of(c), c.file == "forward_e4m3" and rows > 128)
        packed = [h.choose(h.Shape(4, 16, 16, 4096, 4096, 128, True, packed=True, wide=wide, fast=True)) for wide in (False, True)]
        self.assertTrue(all(of(c)["WS_FAST"] == 1 for c in packed))

    def test_what_times_say(self):
        """More work takes no less time, and whatever is asked, some kernel is found."""
        for D in (64, 128, 256):
            for causal, kind in itertools.product((False, True), (dict(), dict(lse=True), dict(plain=False))):
                of = lambda B, S: h.timed_many(h.Shape(B, 16, 16, S, S, D, causal, **kind))[0]
                self.assertLess(of(8, 1024), of(8, 2048))
                self.assertLess(of(8, 2048), of(32, 2048))
            for keys, wgs in ((k, w) for d, k, w in h.TINY if d == D):
                times = [h.tiny_ns(s, h.choose_tiny(s, keys, wgs)) for s in (h.Shape(B, 4, 4, 64, 64, D, False) for B in range(1, 400))]
                self.assertEqual(times, sorted(times), (D, keys, wgs))
            for of_rows in (8, 16):
                of = lambda B, Sk: h.decode_ns(s := h.Shape(B, 8, 8, 1, Sk, D, False), h.choose_decode(s, of_rows=of_rows))
                self.assertLess(of(1, 4096), of(1, 65536))
                self.assertLess(of(4, 4096), of(64, 4096))

    def test_references_where_the_first_tile_has_few_keys(self):
        """Without the mask the tile in which keys end comes first: of whatever keys it has, a second one's maxima are looked at where they are not 128, else rows take up to 1.6 times as long."""
        for D, wgs, made in ((64, 3, False), (64, 4, False), (128, 3, False), (128, 3, True), (256, 2, False), (256, 2, True)):
            looks = lambda Sk, causal=False: ("WS_LOOKS", 2) in h.choose_forward(h.Shape(2, 16, 8, 5000, Sk, D, causal, lse=True), wgs, made).defines
            self.assertEqual([looks(n) for n in (2048, 5000, 4097, 4096, 16384)], [True, True, True, False, False], D)
            self.assertFalse(looks(5000, True))

    def test_some_sms_make_values_transposed_where_they_have_a_row_tile_less_to_do(self):
        # B, H, S, D, causal -> whether; H100: 4x16x4096x128 446 us instead of 462, 4x8x4096x256 406 (416), 2x8x4096x256 254 (242), 8x16x2048x128 258 (257)
        for (B, H, S, D, causal), want in (((4, 16, 4096, 128, False), True), ((1, 16, 16384, 128, False), True), ((4, 8, 4096, 256, False), True), ((1, 5, 8192, 256, False), True), ((2, 8, 4096, 256, False), False),
                                           ((8, 16, 2048, 128, False), False), ((4, 16, 4096, 128, True), True), ((1, 16, 4096, 128, True), False), ((4, 8, 4096, 256, True), True), ((1, 16, 8192, 256, True), False), ((2, 4, 4096, 256, True), False)):
            s = h.Shape(B, H, H, S, S, D, causal)
            c = h.choose(s)
            with self.subTest(s=s):
                self.assertEqual(c.tiles_per_worker > 0, want)
                if want:
                    ctas, workers = h.transposition(s, c).grid[0], 1 << c.tiles_per_worker
                    self.assertEqual((workers, c.units), (ctas * 256 // D, workers + 3))
                    self.assertIn(("WS_DRAWN", 1), c.defines)
                    row_tiles = c.row_tiles * B * H
                    self.assertTrue(causal or h.ceil_div(row_tiles, 132) * 132 - row_tiles >= ctas)
                for more in (dict(packed=True), dict(plain=False), dict(lse=True)):
                    self.assertEqual(h.choose(h.Shape(B, H, H, S, S, D, causal, **more)).tiles_per_worker, 0, more)
        self.assertEqual(h.choose(h.Shape(4, 16, 4, 4096, 4096, 128, False)).tiles_per_unit, 1)   # a section of one head of values, whichever queries read it

    def test_more_weights_are_exact_behind_the_mask_over_many_keys(self):
        exacter = lambda S, **more: ("WS_LONG", 1) in h.choose(h.Shape(1, 16, 16, S, S, 128, True, **more)).defines
        self.assertEqual([exacter(n) for n in (4096, 8192, 8320, 16384, 65536)], [False, False, True, True, True])
        self.assertFalse(exacter(16384, fast=True) or exacter(16384, plain=False) or exacter(16384, packed=True) or exacter(16384, lse=True))

    def test_row_tiles_are_drawn_where_they_come_in_several_rounds(self):
        # B, H, S, D, causal -> counters; packed values are drawn behind the mask, no scales by block, nor with a log-sum-exp
        for (B, H, S, D, causal), units in (((4, 16, 4096, 64, True), 1), ((2, 8, 2048, 64, True), 0), ((16, 16, 1024, 128, True), 1), ((1, 8, 16384, 128, True), 1), ((16, 16, 1024, 128, False), 1), ((2, 8, 1024, 128, False), 0),
                                            ((4, 8, 4096, 256, True), 35), ((1, 8, 8192, 256, True), 1), ((4, 16, 4096, 64, False), 0)):   # 35: V^T beside it
            c = h.choose(h.Shape(B, H, H, S, S, D, causal))
            with self.subTest(B=B, S=S, D=D, causal=causal):
                self.assertEqual((c.units, ("WS_DRAWN", 1) in c.defines), (units, units > 0))
                for more in (dict(packed=True), dict(packed=True, plain=False), dict(packed=True, wide=True)):
                    c = h.choose(h.Shape(B, H, H, S, S, D, causal, **more))
                    self.assertEqual(c.units, int(causal and D > 64 and not ("wide" in more and ("WS_WGS", 3) in c.defines)), more)
                for more in (dict(plain=False), dict(lse=True)):
                    self.assertEqual(h.choose(h.Shape(B, H, H, S, S, D, causal, **more)).units, 0, more)

    def test_packed_values_fit_where_the_kernel_that_takes_them_would_be_chosen(self):
        for shape, fits in (((1, 8, 8, 512, 512, 64, False), False), ((1, 32, 8, 1, 131072, 128, False), False), ((8, 64, 2, 1, 16384, 128, False), False),
                            ((2, 8, 8, 2048, 2048, 64, True), True), ((4, 16, 16, 4096, 4096, 128, True, False), True)):
            self.assertEqual(h.packed_fits(h.Shape(*shape)), fits, shape)

    def test_lengths_on_the_device(self):
        for shape, file in (((8, 32, 8, 1, 4096, 128, True), "decode"), ((8, 32, 8, 8, 4096, 128, True, False), "forward_e4m3"), ((16, 32, 8, 16, 8192, 128, True, False), "forward_e4m3"),
                            ((16, 32, 8, 16, 8192, 128, True, True, False, True), "forward"), ((1, 16, 2, 8, 8192, 256, True, False), "forward_e4m3"), ((1, 8, 8, 300, 4096, 128, True, False), "forward_e4m3"),
                            ((1, 8, 8, 300, 4096, 64, True, False), "forward"), ((1, 8, 8, 300, 4096, 256, True, False, False, True), "forward"),
                            ((16, 32, 8, 16, 8192, 128, True), "forward_e4m3"), ((1, 8, 8, 300, 4096, 128, True), "forward_e4m3"), ((1, 8, 8, 300, 4096, 64, True), "forward_f16")):
            c = h.choose_lengths(h.Shape(*shape))
            self.assertEqual(c.file, file, shape)
            self.assertIn(("WS_LENS", 1), c.defines, shape)
            of_rows = dict(c.defines).get("WS_ROWS")
            if file == "decode":
                self.assertEqual(c.row_tiles, h.ceil_div(shape[1] // shape[2] * shape[3], of_rows) if ("WS_MORE", 1) in c.defines else 0, shape)
            self.assertEqual(FEW in c.defines, file.startswith("forward"), shape)

    def test_pages_of_parts_of_tiles_or_of_whole_ones(self):
        for shape, page, file in (((16, 32, 8, 1, 8192, 128, True), 16, "decode"), ((16, 32, 8, 1, 8192, 128, True, False), 16, "decode"), ((16, 32, 8, 1, 8192, 128, True), 48, "decode"), ((16, 32, 8, 1, 8192, 128, True), 24, "ragged"), ((16, 32, 8, 1, 8192, 128, True), 32, "decode"), ((16, 32, 8, 1, 8192, 128, True), 96, "decode"),
                                  ((16, 32, 8, 16, 8192, 128, True), 16, "forward_e4m3"), ((16, 32, 8, 16, 8192, 128, True), 8, "forward_e4m3"), ((16, 32, 8, 16, 8192, 128, True), 4, "ragged"),
                                  ((16, 32, 8, 16, 8192, 128, True), 96, "ragged"), ((16, 32, 8, 16, 8192, 128, True), 384, "forward_e4m3"), ((8, 64, 8, 3, 8192, 64, True), 192, "decode")):
            self.assertEqual(h.choose_lengths(h.Shape(*shape), page=page).file, file, (shape, page))

    def test_many_queries_of_lengths_on_the_device(self):
        """A prompt in parts over a cache: no other kernel for many queries takes lengths or pages, so few.cuh does, however many they are."""
        for D in (64, 128, 256):
            for page in (None, 16, 64, 256):
                c = h.choose_lengths(h.Shape(8, 32, 8, 2048, 16384, D, True), page=page)
                with self.subTest(D=D, page=page):
                    self.assertEqual(c.defines[-2:], (FEW, ("WS_LENS", 1)))
                    made = h.transposed_bytes(h.Shape(8, 32, 8, 2048, 16384, D, True)) // 4 if D > 64 else 0   # over V^T
                    self.assertEqual((c.tiles_per_worker, c.grid, c.partial_floats), (1, (h.SMS, 1, 1), made))
                    self.assertEqual((c.transposes, dict(c.defines)["WS_WGS"], c.row_tiles), (D > 64, {64: 4, 128: 3, 256: 2}[D], h.ceil_div(8192, {64: 256, 128: 192, 256: 128}[D])))

    def test_few_rows_are_packed_and_their_keys_shared_out(self):
        # B, Hq, Hkv, Sq, Sk, D, causal -> consumers, CTAs of a row tile, row tiles of a key head
        rows = [((1, 8, 1, 128, 32768, 128, False), (2, 16, 8)), ((1, 8, 1, 512, 32768, 128, False), (2, 4, 32)), ((16, 32, 8, 16, 8192, 128, True), (2, 1, 1)),
                ((8, 32, 8, 16, 4096, 128, True), (2, 1, 1)), ((1, 8, 1, 256, 16384, 256, False), (2, 8, 16)), ((4, 8, 8, 32, 8192, 256, True), (1, 4, 1)),
                ((1, 8, 1, 512, 32768, 64, False), (4, 8, 16))]
        shared = {(False, 64, 2): 135168, (False, 64, 4): 152576, (False, 128, 2): 202048, (False, 256, 1): 215616, (False, 256, 2): 199488,
                  (True, 64, 2): 99584, (True, 64, 3): 108288, (True, 128, 2): 197888, (True, 256, 1): 213504, (True, 256, 2): 230144}   # by forward.cu
        for shape, (wgs, ways, row_tiles) in rows:
            s = h.Shape(*shape)
            c, defines = h.choose(s), dict(h.choose(s).defines)
            with self.subTest(shape=shape):
                self.assertIn(FEW, c.defines)
                self.assertEqual((defines["WS_WGS"], c.tiles_per_worker, c.row_tiles, c.block), (wgs, ways, row_tiles, 128 * wgs + 128))
                ctas = s.B * s.Hkv * row_tiles * ways
                self.assertEqual(c.grid, (min(ctas, h.SMS), 1, 1))
                # f16 outputs of 64 rows a consumer, and four floats a thread; a counter for each warp
                self.assertEqual((4 * c.partial_floats, c.units), (ctas * wgs * 64 * s.D * 2 + ctas * wgs * 128 * 16, ctas * wgs * 4) if ways > 1 else (0, 0))
                self.assertEqual(c.shared_bytes, shared[c.file == "forward", s.D, wgs])
                # Scales by block: of two kernels one takes them, with 16 scales of tiles of K and of V. Log-sum-exps are forward.cu's.
                for other in (dict(plain=False), dict(lse=True), dict(plain=False, lse=True)):
                    c = h.choose(h.Shape(*shape, **other))
                    self.assertIn(FEW, c.defines)
                    self.assertEqual((c.file, ("WS_BLOCKS", 1) in c.defines), ("forward" if "lse" in other or s.D == 64 else "forward_e4m3", "plain" in other))
                    self.assertEqual(c.shared_bytes, shared[c.file == "forward", s.D, dict(c.defines)["WS_WGS"]] + 64 * ("plain" in other))
                for other in (dict(packed=True), dict(packed=True, wide=True)):
                    self.assertNotIn(FEW, h.choose(h.Shape(*shape, **other)).defines)

    def test_grouped_heads_whose_queries_leave_row_tiles_half_empty_are_packed(self):
        # B, Hq, Hkv, Sq, Sk, D -> consumers; measured 1.1 to 4 times as fast, causal or not (benches/grouped.py)
        for shape, wgs in (((64, 64, 4, 29, 537, 64), 4), ((32, 32, 8, 65, 1024, 64), 2), ((16, 32, 8, 260, 260, 64), 4), ((64, 32, 2, 53, 3828, 64), 4), ((32, 32, 8, 65, 1024, 128), 2),
                           ((64, 64, 8, 59, 311, 128), 2), ((18, 32, 4, 31, 5048, 128), 2), ((19, 64, 8, 46, 603, 256), 2)):
            for causal in (False, True):
                c = h.choose(h.Shape(*shape, causal))
                with self.subTest(shape=shape, causal=causal):
                    self.assertIn(FEW, c.defines)
                    self.assertEqual((dict(c.defines)["WS_WGS"], c.tiles_per_worker, c.partial_floats), (wgs, 1, 0))
        # Full row tiles, or nothing to pack: not.
        for shape in ((16, 64, 16, 900, 900, 128), (8, 32, 8, 4096, 4096, 64), (64, 32, 8, 512, 2048, 64), (64, 16, 16, 100, 1024, 64), (8, 32, 8, 200, 2048, 256)):
            for causal in (False, True):
                self.assertNotIn(FEW, h.choose(h.Shape(*shape, causal)).defines, (shape, causal))

    def test_time_of_many_row_tiles_counts_what_a_cta_has(self):
        for D in (64, 128, 256):
            for wgs in h.FEW[D]:
                s = h.Shape(33, 32, 8, 16 * wgs * 4, 1024, D, False)   # four row tiles of a key head, 1,056 of all: eight of a CTA
                self.assertEqual(h.few_busiest(s, wgs, 1), 8 * 8)
        # Causal: the last rows see most, and a CTA may have the longest row tiles each time (four of a head, 132 CTAs).
        for B, g, Sq, Sk, wgs, exactly in ((33, 4, 128, 128, 2, True), (33, 8, 512, 512, 4, False), (7, 6, 700, 1900, 2, True), (40, 3, 999, 999, 4, False)):
            s = h.Shape(B, 8 * g, 8, Sq, Sk, 64, True)
            rows = 64 * wgs
            seen = [h.ceil_div(Sk - Sq + (min(g * Sq, first + rows) - 1) // g + 1, 128) for first in range(0, g * Sq, rows)][::-1]
            of_cta = [0] * 132
            for unit in range(B * 8 * len(seen)):
                of_cta[unit % 132] += seen[unit % len(seen)]
            self.assertAlmostEqual(h.few_busiest(s, wgs, 1) / max(of_cta), 1, delta=0 if exactly else 0.06)

    def test_one_tile_of_keys_or_three_come_one_by_one(self):
        """At D 128 without a mask, where steps of two tiles are half empty: by three consumers of forward.cu or two of forward_e4m3.cu. Of two tiles either way is as fast."""
        for Sk, by_one in ((1, True), (128, True), (257, True), (384, True), (385, False), (512, False), (1024, False)):
            c = h.choose(h.Shape(8, 64, 64, 1024, Sk, 128, False))
            self.assertEqual((("WS_BLOCKS", 1) in c.defines, c.transposes), (by_one, False), Sk)
        for Sq, file, wgs in ((192, "forward", 3), (128, "forward_e4m3", 2), (97, "forward_e4m3", 2), (1833, "forward", 3)):
            c = h.choose(h.Shape(40, 32, 32, Sq, 300, 128, False))
            self.assertEqual((c.file, dict(c.defines)["WS_WGS"], dict(c.defines)["WS_BLOCKS"], c.transposes), (file, wgs, 1, False), Sq)

    def test_many_tiny_ctas_give_way_where_row_tiles_are_full(self):
        # Measured, us: 5.7 and 4.3, 7.2 and 5.2, 9.8 and 7.5; then 7.3 and 11.7, 12.3 and 22.0, 8.0 and 8.4.
        for shape, file in (((2, 64, 8, 91, 90, 64, False), "forward_f16"), ((3, 32, 16, 116, 80, 128, False), "forward_e4m3"), ((8, 8, 1, 161, 128, 256, True), "forward"),
                            ((4, 128, 8, 26, 26, 128, False), "tiny"), ((39, 16, 1, 51, 51, 256, True), "tiny"), ((2, 8, 8, 512, 512, 64, False), "tiny")):
            self.assertEqual(h.choose(h.Shape(*shape)).file, file, shape)
        self.assertEqual(h.choose(h.Shape(2, 64, 8, 91, 90, 64, False, lse=True)).file, "tiny")

    def test_sixteen_rows_over_large_caches(self):
        """Few rows are decode.cu's, unless its units come in rounds: 9 to 16 rows, and a key head to each SM. Where units leave SMs idle stretches do not."""
        for shape, few in (((16, 32, 8, 4, 8192, 128, True), True), ((14, 32, 8, 4, 8192, 128, True), False), ((16, 32, 8, 4, 8192, 128, True, False), True), ((16, 32, 8, 2, 8192, 128, True), False), ((16, 32, 8, 4, 8192, 64, True), False),
                           ((1, 32, 8, 1, 131072, 128, False), False), ((64, 32, 8, 1, 4096, 128, False), False), ((16, 64, 8, 1, 8192, 128, False), False), ((8, 16, 2, 1, 16384, 256, False), False)):
            self.assertEqual(FEW in h.choose(h.Shape(*shape)).defines, few, shape)

    def test_more_ways_pay_as_long_as_sms_are_idle(self):
        for D in (64, 128, 256):
            for wgs in h.FEW[D]:
                time = lambda ways, **more: h.few_ns(h.Shape(1, 1, 1, 64 * wgs, 32768, D, False, **more), wgs, ways)
                self.assertEqual(sorted((1, 2, 4, 8, 16), key=time, reverse=True), [1, 2, 4, 8, 16])
                ways = h.choose_few(h.Shape(8, 8, 8, 64 * wgs, 1024, D, False), wgs)[1].tiles_per_worker   # 64 row tiles for 132 SMs: not three, whose second round would double the time
                self.assertLessEqual(ways, 2)
                self.assertEqual(h.choose_few(h.Shape(1, 1, 1, 20, 200, D, False), wgs)[1].tiles_per_worker, 1)

    def test_rows_at_a_time(self):
        for shape, of_rows in (((1, 32, 8, 2, 8192, 128), 8), ((1, 32, 8, 3, 8192, 128), 16), ((1, 32, 8, 8, 8192, 128), 16), ((16, 32, 8, 8, 8192, 128), 32), ((8, 64, 8, 8, 8192, 64), 32),
                               ((16, 16, 2, 4, 8192, 256), 16)):
            s = h.Shape(*shape, True, lse=True)
            c = h.choose(s) if s.group * s.Sq <= 16 else h.choose_more(s)[1]
            self.assertEqual((c.file, dict(c.defines)["WS_ROWS"]), ("decode", of_rows), shape)

    def test_every_launch_is_possible(self):
        for D in (64, 128, 256):
            for B, Hq, Hkv in ((1, 1, 1), (3, 8, 2), (64, 32, 8), (70_000, 1, 1)):
                for Sq in (1, 3, 65, 512, 5000):
                    for Sk in (1, 77, 512, 4096, 100000):
                        for plain, lse in ((True, False), (True, True), (False, False), (False, True)):
                            c = h.choose(h.Shape(B, Hq, Hkv, Sq, Sk, D, Sq > 4, plain, lse=lse))
                            with self.subTest(c=c):
                                self.assertLessEqual(c.shared_bytes, 232448)
                                self.assertTrue(0 < c.block <= 1024 and all(0 < g < 2**31 for g in c.grid))
                                self.assertLess(max(c.grid[1:]), 65536)
                                if ("WS_SPREAD", 1) in c.defines:
                                    self.assertTrue(c.units <= 16384 and c.grid[0] <= h.SMS)
                                elif c.file == "decode":   # whole teams, and no more of them than units; counters of a stream's slot
                                    self.assertLessEqual(c.units, 16384)
                                    self.assertEqual(c.grid[0] % c.tiles_per_worker, 0)
                                    self.assertTrue(c.grid[0] // c.tiles_per_worker <= c.total_tiles and c.grid[0] <= h.SMS)
                                elif c.total_tiles:
                                    self.assertGreaterEqual(c.tiles_per_worker * c.grid[0] * (3 if c.file == "split" else 1), c.total_tiles)

    def test_the_tables_for_rust_are_fresh(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
        import choices
        if not choices.TABLE.exists():
            self.skipTest("not a checkout")
        self.assertEqual(choices.TABLE.read_text(), choices.table(), "renew it: python3 python/tests/choices.py > crates/attention/tests/choices.tsv")
        self.assertEqual(choices.LENGTHS.read_text(), choices.lengths_table(), "renew it: python3 python/tests/choices.py lengths > crates/attention/tests/lengths.tsv")
        self.assertEqual(choices.PORTABLE.read_text(), choices.portable_table(), "renew it: python3 python/tests/choices.py portable > crates/attention/tests/portable.tsv")


if __name__ == "__main__":
    unittest.main()
