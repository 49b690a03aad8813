"""The choice of a kernel for sequences that lie one behind another. Needs neither torch nor a GPU."""
import itertools
import json
import math
import pathlib
import random
import unittest
import unittest.mock
from dataclasses import replace

from test_heuristic import FEW, decided, h, lengths_of, varlen


def decided_for(c, s, queries, keys):
    """How many CTAs share a row tile's keys where sequences lie one behind another: the host's number, or, if that has left it to the device, as few_decide of few.cuh decides."""
    if not c.row_tiles:
        return c.tiles_per_worker
    defines = dict(c.defines)
    step = 256 if c.file == "forward_e4m3" and s.D == 128 and s.plain and not s.causal else 128
    steps = lambda n: max(1, h.ceil_div(n, step))
    row_tiles = [h.ceil_div(s.group * q, 64 * defines["WS_WGS"]) for q in queries]
    longest, work = max(steps(k) for k, n in zip(keys, row_tiles) if n), sum(n * steps(k - q // 2 if s.causal else k) for n, q, k in zip(row_tiles, queries, keys))
    def cycles(ways):
        shares = sum(row_tiles) * s.Hkv * ways
        if ways > 1 and shares > c.row_tiles:
            return math.inf
        high = 16 if shares > c.grid[0] and ways == 1 else 0
        of_step, of_rows = (c.tiles_per_unit >> high & 0xFFFF) * step // 128, (c.total_tiles >> high & 0xFFFF) + ((ways > 1) + (ways > 4) + (ways > 16)) * c.section
        share = h.ceil_div(longest, ways) * of_step + of_rows
        return max(share, s.Hkv * (work * of_step + sum(row_tiles) * ways * of_rows) / c.grid[0] + 0.45 * share) if shares > c.grid[0] else share
    return min(range(1, c.tiles_per_worker + 1), key=cycles)


class Varlen(unittest.TestCase):
    def test_sequences_one_behind_another(self):
        # B, Hq, Hkv, longest q and k, D, causal; tokens of q and k -> consumers, CTAs of a row tile
        rows = [((8, 16, 16, 2048, 2048, 128, True), (16384, 16384), (2, 1)), ((8, 16, 16, 2048, 2048, 64, True), (16384, 16384), (4, 1)), ((4, 8, 8, 4096, 4096, 256, False), (9000, 9000), (2, 1)),
                ((2, 8, 1, 64, 32768, 128, False), (128, 65536), (2, 16)), ((4, 8, 2, 40, 9000, 64, True), (160, 20000), (4, 16))]
        for shape, tokens, (wgs, ways) in rows:
            s = h.Shape(*shape)
            c = varlen.choose_varlen(s, *tokens)
            with self.subTest(shape=shape):
                self.assertEqual(c.defines[-2:], (FEW, ("WS_LENS", 2)))
                self.assertEqual((dict(c.defines)["WS_WGS"], c.tiles_per_worker, c.row_tiles), (wgs, ways, 0))
                for other in (dict(plain=False), dict(lse=True), dict(plain=False, lse=True)):
                    c = varlen.choose_varlen(h.Shape(*shape, **other), *tokens)
                    self.assertEqual((c.file, c.defines[-1], ("WS_BLOCKS", 1) in c.defines), ("forward" if "lse" in other or s.D == 64 else "forward_e4m3", ("WS_LENS", 2), "plain" in other))
                    self.assertLessEqual(c.shared_bytes, 232448)

    def test_scratch_is_for_all_lengths_that_the_device_may_find(self):
        """Offsets that fall, so that sequences overlap, are wrong, and must not leave the scratch: each sequence may have as many queries as the longest; where the device decides, it takes no more shares than there is scratch for."""
        dice, shared, left_to_it = random.Random(3), 0, 0
        for _ in range(2000):
            B, Hkv, group, D = dice.randint(1, 30), dice.choice((1, 2, 5)), dice.choice((1, 3, 4, 8)), dice.choice((64, 128, 256))
            lengths = [dice.choice((0, 1, dice.randint(1, 40), dice.randint(1, 600))) for _ in range(B)]
            if not max(lengths):
                continue
            tokens = sum(lengths) + dice.choice((0, 0, 7))
            c = varlen.choose_varlen(h.Shape(B, Hkv * group, Hkv, max(lengths), 40000, D, dice.random() < 0.5), tokens, 40000 * B)
            if c.file == "decode":
                self.assertLessEqual(group * max(lengths), 16)
                continue
            wgs, ways = dict(c.defines)["WS_WGS"], c.tiles_per_worker
            shared += ways > 1
            left_to_it += c.row_tiles > 0
            made = h.token_tiles(h.Shape(B, 1, 1, 1, 1, D, False), 40000 * B) * 32 * Hkv * D if c.transposes else 0
            if c.splits > 1:   # heads apart
                Hkv, group = Hkv * group, 1
            parts = c.row_tiles or (B * h.ceil_div(group * max(lengths), 64 * wgs) * Hkv * ways if ways > 1 else 0)
            self.assertTrue(c.row_tiles <= h.MOST_SHARES * h.SMS and (c.tiles_per_unit > 0) == (c.row_tiles > 0) and (not c.row_tiles or ways <= 32))
            self.assertEqual((c.partial_floats, c.units), (made + parts * 128 * wgs * (D // 4 + 4), 1 + parts * 4 * wgs))
            self.assertLessEqual(c.partial_floats - made, h.MOST_PARTS)
            self.assertEqual(c.grid[0], min(h.SMS, ways * Hkv * min(B * h.ceil_div(group * max(lengths), 64 * wgs), h.ceil_div(group * tokens, 64 * wgs) + B)))
        self.assertTrue(shared > 500 and left_to_it > 200, (shared, left_to_it))
        self.assertEqual(varlen.choose_varlen(h.Shape(60_000, 64, 8, 100_000, 100_000, 128, True), 10_000_000, 10_000_000).file, "ragged")   # whose row tiles, if all were the longest, no i32 counts
        skewed = h.Shape(100, 8, 1, 100_000, 100_000, 64, True)   # one long sequence and many short ones
        self.assertEqual((varlen.choose_varlen(skewed, 100_500, 100_500).tiles_per_worker, varlen.choose_varlen(skewed, 100_500, 100_500).partial_floats), (1, 0))

    def test_shares_where_sequences_differ(self):
        """By the journal of random calls of sequences one behind another, chunks of prompts and prompts over caches: consumers and CTAs of a row tile as were near the fastest."""
        path = pathlib.Path(__file__).resolve().parents[2] / "benches" / "results" / "2026-11-28-h200-attention-uneven.json"
        if path.exists():
            ratios, before = {}, []
            for kind, B, Hq, Hkv, Sq, Sk, D, causal, lse, tokens_q, tokens_k, lengths, _, us_before, measured in json.loads(path.read_text())["calls"]:
                s = h.Shape(B, Hq, Hkv, Sq, Sk, D, bool(causal), lse=bool(lse))
                with unittest.mock.patch.object(h, "may_make", lambda *_: False):
                    c = h.choose_lengths(s) if kind == "prompt" else varlen.choose_varlen(s, tokens_q, tokens_k)
                ways = decided_for(c, s, lengths_of(B, Sq, tokens_q), lengths_of(B, Sk, tokens_k)) if kind != "prompt" else c.tiles_per_worker if FEW not in c.defines else decided(c, s, lengths_of(B, Sk, tokens_k))
                us = {(("forward", "forward_e4m3", "forward_f16")[file], wgs, ways): t for file, wgs, ways, t in measured}
                chosen = us.get((c.file, dict(c.defines).get("WS_WGS"), ways))
                if chosen:
                    ratios.setdefault((kind, lengths), []).append(chosen / min(us.values()))
                    before.append(us_before / min(us.values()))
            mean = lambda x: math.exp(sum(map(math.log, x)) / len(x))
            self.assertGreater(len(before), 800)
            self.assertLess(mean(sum(ratios.values(), [])), 1.022)
            self.assertGreater(mean(before), 1.04)
            for kind, of in ratios.items():
                self.assertLess(mean(of), 1.055, kind)
        one_long = h.Shape(6, 10, 2, 256, 15192, 128, False)   # and five of at most 1,266: 145 us by one CTA, 53 by three
        self.assertGreaterEqual(decided(h.choose_lengths(one_long), one_long, [15192] + [600] * 5), 3)
        alike = lambda n: varlen.choose_varlen(h.Shape(16, 32, 8, 2048, 2048, 128, True), n, n).tiles_per_worker
        self.assertEqual((alike(16 * 2048), alike(2048 + 15 * 40)), (1, 1))

    def test_sequences_of_which_most_have_one_token(self):
        """By the journal of random calls of a few prompts beside single tokens: the device's number of CTAs, of the kernel that the host chooses, is near the fastest; where the host keeps its own, that is no worse than before."""
        path = pathlib.Path(__file__).resolve().parents[2] / "benches" / "results" / "2026-11-29-h200-attention-mixed.json"
        if path.exists():
            ratios, before, left = {}, {}, 0
            for kind, B, Hq, Hkv, D, queries, keys, us_before, _, measured in json.loads(path.read_text())["numbers of CTAs"]["calls"]:
                s = h.Shape(B, Hq, Hkv, max(queries), max(keys), D, max(queries) > 1)
                c = varlen.choose_varlen(s, sum(queries), sum(keys))
                if c.file == "decode" or c.transposes:
                    self.assertTrue(c.transposes or s.group * s.Sq <= 16)
                    continue
                ways, kernel = decided_for(c, s, queries, keys), (("forward", "forward_e4m3", "forward_f16").index(c.file), dict(c.defines)["WS_WGS"])
                us = {n: t for *of, n, t in measured if tuple(of) == kernel}
                nearest, best = min(us, key=lambda n: abs(math.log(n / ways))), min(t for *_, t in measured)
                left += c.row_tiles > 0
                ratios.setdefault(kind, []).append(us[nearest] / best)
                before.setdefault(kind, []).append(us_before / best)
            mean = lambda x: math.exp(sum(map(math.log, x)) / len(x))
            self.assertTrue(left > 200 and sum(map(len, ratios.values())) > 600)
            for kind in ("one", "some", "spec"):
                self.assertLess(mean(ratios[kind]), 1.05, kind)
                self.assertGreater(mean(before[kind]), mean(ratios[kind]) + 0.02, kind)
            self.assertLess(mean(sum(ratios.values(), [])), 1.035)
            self.assertLess(mean(ratios["chunk"]), 1.02)
        choose = lambda queries, keys, D=128: varlen.choose_varlen(h.Shape(len(queries), 32, 8, max(queries), max(keys), D, True), sum(queries), sum(keys))
        for D in (64, 128, 256):
            batch = [512] + [1] * 40, [4000] + [900] * 40
            s = h.Shape(41, 32, 8, 512, 4000, D, True)
            c = choose(*batch, D)
            self.assertLessEqual(decided_for(c, s, *batch), 3, c)
            self.assertEqual(choose([512] * 41, [4000] * 41, D).row_tiles, 0)   # alike: the host knows
            self.assertEqual(choose([4000], [4000], D).row_tiles, 0)
            few = choose([1, 2, 1], [9000, 300, 1], D)   # all of few rows: no prompt
            self.assertEqual((few.file, few.defines[-2:]), ("decode", (("WS_SPREAD", 1), ("WS_LENS", 2))))
            self.assertNotEqual(choose([1, 5, 1], [9000, 300, 5], D).file, "decode")
        many = h.Shape(40_000, 32, 8, 1, 100, 128, False)   # whose tiles, if each sequence was all keys, no i32 counts
        self.assertEqual([varlen.choose_varlen(many, 40_000, n).file for n in (500_000, 4_000_000)], ["decode", "forward"])

    def test_heads_apart(self):
        """Row tiles of one query head each: at D 256, in groups of which 64 rows are no whole ones, where queries are many, not where most sequences have one; V^T is of as many heads as before."""
        for D, group in itertools.product((64, 128, 256), (3, 5, 6, 7, 12)):
            s = h.Shape(4, 2 * group, 2, 3000, 3000, D, True)
            apart, prompts, tokens = h.heads_apart(s), varlen.choose_varlen(s, 12000, 12000), varlen.choose_varlen(replace(s, B=60), 3059, 60 * 2000)
            self.assertEqual((prompts.splits, h.choose_lengths(s).splits), (group, group) if D == 256 else (1, 1))
            self.assertEqual((tokens.splits, h.choose_lengths(replace(s, Sq=2)).splits), (1, 1))   # a few rows: decode.cu's or few.cuh's, of whole groups
            self.assertLessEqual(prompts.grid[0], h.SMS)
            if D == 256:
                self.assertEqual((apart.Hkv, apart.group, apart.kv_heads, apart.Hq), (s.Hq, 1, 2, s.Hq))
                self.assertEqual(h.made_bytes(apart, 12000), h.made_bytes(s, 12000))
        for group in (1, 2, 4, 8, 64):
            self.assertEqual(varlen.choose_varlen(h.Shape(4, group, 1, 3000, 3000, 256, True), 12000, 12000).splits, 1)
        self.assertIsNone(h.heads_apart(h.Shape(60000, 21, 7, 6000, 6000, 256, True)))   # row tiles beyond 32 bits

    def test_sequences_one_behind_another_over_v_t(self):
        """By the journal of random calls: V^T is made before where that is the fastest, or nearly; never where it may not be."""
        path = pathlib.Path(__file__).resolve().parents[2] / "benches" / "results" / "2026-11-28-h200-attention-tokens.json"
        if path.exists():
            ratios, before, made = {}, [], 0
            for kind, B, Hq, Hkv, Sq, Sk, D, causal, tokens_q, tokens_k, _, _, us_before, _, _, measured in json.loads(path.read_text())["calls"]:
                c = varlen.choose_varlen(h.Shape(B, Hq, Hkv, Sq, Sk, D, bool(causal)), tokens_q, tokens_k)
                us = {(file, wgs, ways): t for file, wgs, ways, t in measured}
                chosen = us.get((3 if c.transposes else ("forward", "forward_e4m3").index(c.file), dict(c.defines).get("WS_WGS"), c.tiles_per_worker)) if c.file != "decode" else None
                if chosen:
                    ratios.setdefault((kind, D), []).append(chosen / min(us.values()))
                    before.append(us_before / min(us.values()))
                    made += c.transposes
            mean = lambda x: math.exp(sum(map(math.log, x)) / len(x))
            self.assertGreater(len(before), 1000)
            self.assertGreater(made, 300)
            self.assertLess(mean(sum(ratios.values(), [])), 1.013)
            self.assertGreater(mean(before), 1.07)
            for kind, of in ratios.items():
                self.assertLess(mean(of), 1.026, kind)
        long = dict(B=2, Hq=16, Hkv=4, Sq=8192, Sk=8192, causal=True)
        choose = lambda D, **more: varlen.choose_varlen(h.Shape(**{**long, "D": D, **more}), 16384, 16384)
        for D in (128, 256):
            c = choose(D)
            self.assertEqual((c.transposes, c.tiles_per_worker, c.partial_floats * 4, c.shared_bytes <= 232448), (True, 1, (16384 // 128 + 2) * 128 * 4 * D, True))
            t = h.lengths_transposition(h.Shape(**long, D=D), 4 * c.partial_floats, 2)
            self.assertEqual((t.grid[0], t.name), (h.SMS, f"transpose_d{D}_lens2"))
            for more in (dict(lse=True), dict(plain=False), dict(Sq=64, Sk=64, B=256)):
                self.assertFalse(choose(D, **more).transposes, more)
        self.assertFalse(choose(64).transposes)
        self.assertTrue(varlen.choose_varlen(h.Shape(1, 8, 2, 8000, 8000, 256, True), 8000, 8000).transposes)
        self.assertEqual((choose(256, Hq=20).transposes, choose(256, Hq=20).splits), (True, 5))   # five heads to a key head: factors recur every 64 rows of one
        self.assertTrue(choose(128, Hq=20).transposes)
        huge = h.Shape(**{**long, "Hkv": 16}, D=256)
        self.assertFalse(h.may_make(huge, h.made_bytes(huge, 1 << 20)))   # 4 GB


if __name__ == "__main__":
    unittest.main()
