"""crates/attention/tests/choices.tsv, lengths.tsv and portable.tsv: what the heuristic gives for many shapes, so that its two versions, in Python and in Rust, stay one.

    python3 python/tests/choices.py              # prints the table; > crates/attention/tests/choices.tsv renews it
    python3 python/tests/choices.py lengths      # that of sequences whose lengths only the device knows; > crates/attention/tests/lengths.tsv
    python3 python/tests/choices.py portable     # that of cards that are no Hopper; > crates/attention/tests/portable.tsv
"""
import importlib
import itertools
import pathlib
import random
import sys
import types

_here = pathlib.Path(__file__).resolve()
TABLE = _here.parents[2] / "crates" / "attention" / "tests" / "choices.tsv"
LENGTHS, PORTABLE = TABLE.with_name("lengths.tsv"), TABLE.with_name("portable.tsv")


def heuristic(module="_heuristic"):
    """_heuristic.py, or another one, without the package's own front, which imports torch."""
    name = "attention_heuristic"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = [str(_here.parents[1] / "warpsmith" / "attention")]
        sys.modules[name] = package
    return importlib.import_module(f"{name}.{module}")


def boundaries(h):
    """Problems on both sides of the first lengths of queries, up to 4,096, at which forward_f16.cu (D 64) or forward_e4m3.cu (D 128) gets another number of consumers."""
    found = []
    for D, (B, Hkv, g), causal, sms in itertools.product((64, 128), ((1, 8, 1), (4, 4, 4), (3, 1, 5)), (0, 1), (132, 78)):
        consumers = lambda Sq: dict(h.choose_many(h.Shape(B, Hkv * g, Hkv, Sq, 3000, D, bool(causal)), sms).defines)["WS_WGS"]
        edges = [Sq for Sq in range(65, 4097) if consumers(Sq) != consumers(Sq - 1)]
        for Sq in edges[:6]:
            found += [(D, (B, Hkv, g), (n, 3000), causal, (1, 0, lse, 0, 0), sms) for n in (Sq - 1, Sq) for lse in (0, 1)]
    return found


def table():
    """The text of the whole table."""
    h = heuristic()
    lines = ["# batch heads_kv group seqlen_q seqlen_k head_dim causal plain packed lse wide fast sms | instance grid block shared tiles_per_unit tiles_per_worker total_tiles row_tiles section partial units boxes"]
    lengths = [(1, 8192), (1, 64), (4, 8192), (17, 3000), (100, 777), (512, 512), (256, 1000), (300, 100), (2048, 2048), (5000, 16384), (16384, 16384)]
    heads = ((1, 8, 1), (2, 2, 4), (64, 8, 4), (3, 1, 5))
    rows = list(itertools.product((64, 128, 256), heads, lengths, (0, 1), ((1, 0, 0, 0, 0), (1, 0, 1, 0, 0), (0, 0, 0, 0, 0), (1, 1, 0, 0, 0), (1, 1, 0, 1, 0), (1, 0, 0, 0, 1)), (132, 114)))
    rows = [r for r in rows if r[5] == 132 or (r[0], r[4][0]) == (128, 1) and not r[4][2]]
    rows += boundaries(h)
    # Heads in groups with queries that do not fill row tiles, whose rows are packed; one tile of keys, or three; and more CTAs of tiny.cu than pay.
    rows += [(D, heads, n, causal, (1, 0, 0, 0, 0), sms) for D in (64, 128, 256) for causal in (0, 1) for sms in (132, 78)
             for heads, n in (((64, 4, 16), (29, 537)), ((28, 4, 16), (277, 277)), ((32, 8, 4), (65, 1024)), ((16, 8, 8), (130, 1024)), ((3, 1, 2), (1861, 1041)), ((7, 3, 6), (700, 1900)),
                              ((21, 8, 8), (304, 304)), ((1, 16, 5), (1833, 125)), ((69, 8, 4), (128, 128)), ((6, 8, 1), (579, 384)), ((40, 2, 9), (33, 33)), ((2, 8, 8), (91, 90)), ((3, 16, 2), (116, 80)), ((8, 1, 8), (161, 128)))]
    # A few tokens over large caches, where teams leave SMs without work, or not.
    rows += [(D, heads, n, causal, (1, 0, lse, 0, 0), sms) for D in (64, 128, 256) for causal, lse in ((0, 0), (1, 0), (0, 1)) for sms in (132, 78)
             for heads, n in (((28, 10, 12), (1, 3848)), ((34, 2, 1), (1, 3152)), ((13, 16, 1), (1, 3675)), ((10, 16, 8), (1, 1771)), ((20, 4, 1), (14, 5585)), ((3, 133, 1), (1, 3000)), ((70, 1, 4), (2, 9000)),
                              ((7, 8, 4), (1, 3000)), ((1, 5, 3), (3, 60000)), ((9, 12, 1), (9, 2000)))]
    for D, (B, Hkv, g), (Sq, Sk), causal, (plain, packed, lse, wide, fast), sms in rows:
        c = h.choose(h.Shape(B, Hkv * g, Hkv, Sq, Sk, D, bool(causal), bool(plain), bool(packed), bool(lse), bool(wide), bool(fast)), sms)
        lines.append(" ".join(map(str, (B, Hkv, g, Sq, Sk, D, causal, plain, packed, lse, wide, fast, sms))) + "\t" + " ".join(map(str, said(c))))
    return "\n".join(lines) + "\n"


def said(c):
    """All that a choice says but whether it takes V^T and its splits."""
    return [c.name, "x".join(map(str, c.grid)), c.block, c.shared_bytes, c.tiles_per_unit, c.tiles_per_worker, c.total_tiles, c.row_tiles, c.section, int(c.partial_floats), c.units,
            "x".join(map(str, c.boxes)) or "-"]


def lengths_table(count=900):
    """Random calls of either kind: over caches, by pages of so many keys (0: no pages), and one behind another, of so many tokens of queries and of keys."""
    h, t, rng = heuristic(), heuristic("_tokens"), random.Random(29)
    lines = ["# caches page | tokens q k | batch heads_kv group seqlen_q seqlen_k head_dim causal plain lse fast sms | as choices.tsv, whether V^T is made before, splits"]
    size = lambda most: rng.randint(1, 1 << rng.randint(0, most))
    for i in range(count):
        B, Hkv, g, D, sms = min(size(9), 400), rng.choice((1, 2, 4, 8, 16, 32)), rng.choice((1, 1, 2, 3, 4, 5, 7, 8, 16, 64)), rng.choice((64, 128, 256)), rng.choice((132, 132, 78))
        causal, plain, lse, fast = rng.randint(0, 1), int(rng.random() < 0.8), int(rng.random() < 0.2), int(rng.random() < 0.15)
        few, prompts = rng.random() < 0.4, i % 5 == 0
        Sq, Sk = (rng.randint(1, 16) if few else size(13)), 1 + size(16)
        if prompts:   # over as many keys, which V^T may be made for
            Sq = Sk = rng.randint(500, 5000)
            B, plain, lse = min(B, 64), 1, 0
        s = h.Shape(B, Hkv * g, Hkv, Sq, Sk, D, bool(causal), bool(plain), lse=bool(lse), fast=bool(fast))
        if i % 2:
            page = rng.choice((0, 0, 0, 16, 32, 64, 128, 256, 1, 24, 48, 100))
            if page:
                s = h.replace(s, Sk=h.ceil_div(Sk, page) * page)
            kind, c = f"caches {page}", h.choose_lengths(s, sms, page or None)
        else:
            of_one = rng.random() < 0.4   # most have one query
            lengths = lambda most, one: [most] + [1 if one else rng.randint(1, most) for _ in range(B - 1)]
            q, k = sum(lengths(Sq, of_one)), sum(lengths(Sk, False))
            q = k if prompts else q
            q, k = (q, k) if i % 7 else (2 * q + 100, 2 * k)   # room for more than there can be
            kind, c = f"tokens {q} {k}", t.choose_varlen(s, q, k, sms)
        asked = (B, Hkv, g, Sq, s.Sk, D, causal, plain, lse, fast, sms)
        lines.append(kind + "\t" + " ".join(map(str, asked)) + "\t" + " ".join(map(str, [*said(c), int(c.transposes), c.splits])))
    return "\n".join(lines) + "\n"


def portable_table(count=300):
    """Random calls on cards that are no Hopper: alike, over caches, and one behind another, of so many tokens of queries."""
    h, of, rng = heuristic(), heuristic("_portable"), random.Random(37)
    lines = ["# alike | caches | tokens q | batch heads_kv group seqlen_q seqlen_k head_dim causal sms ada | as choices.tsv"]
    size = lambda most: rng.randint(1, 1 << rng.randint(0, most))
    for i in range(count):
        ada, B, Hkv, g, D, sms = rng.random() < 0.5, min(size(8), 200), rng.choice((1, 2, 4, 8, 32)), rng.choice((1, 1, 2, 3, 4, 7, 16)), rng.choice((64, 128, 256)), rng.choice((58, 108, 132, 170))
        Sq, Sk, causal = (rng.randint(1, 16) if rng.random() < 0.6 else size(12)), 1 + size(16), rng.randint(0, 1)
        s, q = h.Shape(B, Hkv * g, Hkv, Sq, Sk, D, bool(causal)), Sq + sum(rng.randint(0, Sq) for _ in range(B - 1))
        kind, c = (("alike", of.choose(s, sms, ada)), ("caches", of.choose_lengths(s, sms, ada=ada)), (f"tokens {q}", of.choose_lengths(s, sms, q, ada)))[i % 3]
        lines.append(kind + "\t" + " ".join(map(str, (B, Hkv, g, Sq, Sk, D, causal, sms, int(ada)))) + "\t" + " ".join(map(str, said(c))))
    return "\n".join(lines) + "\n"


def same_by(native, count=1500):
    """How many random choices of the wheel's `_native` were looked at: all are Python's own, of the package that is installed."""
    from warpsmith.attention import _chosen, _heuristic as h, _tokens as t
    rng = random.Random(31)
    assert _chosen.native is native, "calls choose by it"
    size = lambda most: rng.randint(1, 1 << rng.randint(0, most))
    for i in range(count):
        B, Hkv, g, D, sms = min(size(9), 300), rng.choice((1, 2, 3, 8, 32)), rng.choice((1, 1, 2, 4, 5, 7, 16)), rng.choice((64, 128, 256)), rng.choice((132, 132, 78))
        Sq, Sk, causal, packed = rng.choice((1, size(4), size(12), 3000)), size(15), rng.random() < 0.5, rng.random() < 0.2
        wide = packed and rng.random() < 0.4
        s = h.Shape(B, Hkv * g, Hkv, Sq, Sk, D, causal, rng.random() < 0.8, packed, rng.random() < 0.2 and not wide, wide, rng.random() < 0.2)
        alike, page = h.replace(s, packed=False, wide=False), rng.choice((None, 16, 64, 100))
        q, k = min(B * Sq, Sq + B), Sk + B * Sk // 3
        for ours, theirs in ((_chosen.choose(s, sms), lambda: h.choose(s, sms)), (_chosen.choose_lengths(alike, sms, page), lambda: h.choose_lengths(alike, sms, page)),
                             (_chosen.choose_varlen(alike, q, k, sms), lambda: t.choose_varlen(alike, q, k, sms)), (_chosen.packed_fits(s, sms), lambda: h.packed_fits(s, sms))):
            assert ours == theirs(), (s, page, q, k, sms, ours, theirs())
    asked = h.Shape(1, 1, 1, 1, 1 << 40, 64, False)
    assert native.choose(_chosen._numbers(asked), 132) is None, "more keys than are counted in 32 bits are Python's"
    return 4 * count


if __name__ == "__main__":
    sys.stdout.write({"lengths": lengths_table, "portable": portable_table}.get("".join(sys.argv[1:]), table)())
