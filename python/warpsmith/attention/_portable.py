"""The kernel for every card that is no Hopper: one for Ada and Blackwell, products in e4m3 (`ada`), another for the rest. Pure functions of the shape and the number of SMs."""
from math import isqrt

from ._choice import Choice, ceil_div

MOST_SCRATCH = 64 << 20   # bytes of what CTAs that share keys leave
MOST_COUNTERS = 16_383    # that a stream's slot has, beside the one that row tiles are drawn from
MOST_SHARES = 2048        # whose largest scores and sums find room in shared memory at once (portable.cu)
_GRID = 65_535


def choose(s, sms, ada=False):
    """64 packed rows to a CTA. Where these are few, CTAs share a row tile's keys."""
    return _choice(s, sms, ada, s.B * s.Hkv * row_tiles(s))


def choose_lengths(s, sms, tokens_q=None, ada=False):
    """The same where only the device knows lengths: of so many tokens one behind another, or in caches or pages."""
    most = s.B * row_tiles(s)
    ctas = s.Hkv * (most if tokens_q is None else min(most, ceil_div(tokens_q * s.group, 64) + s.B))
    return _choice(s, sms, ada, ctas, WS_LENS=1)


def row_tiles(s):
    return ceil_div(s.group * s.Sq, 64)


def shared_bytes(D, ada):
    """Where products are in e4m3 Q and two stages of K and V in bytes (portable_e4m3.cuh); else Q and a tile of K and V in halves, and K and V in bytes (portable_f16.cuh)."""
    keys = 32 if D == 256 else 64
    return (64 + 4 * keys) * D if ada else (64 + 2 * keys) * (D + 8) * 2 + 2 * keys * D


def _choice(s, sms, ada, ctas, **more):
    tiles, rows, count = row_tiles(s), min(64, s.group * s.Sq), shares(s, sms, ada, ctas)
    units, shared = s.B * s.Hkv * tiles, count > 1
    return Choice("portable", tuple(dict(WS_D=s.D, WS_CAUSAL=int(s.causal), **more).items()), (tiles, s.Hkv * count, s.B), 128, shared_bytes(s.D, ada), tiles_per_worker=count,
                  partial_floats=shared * units * count * rows * (s.D + 4), units=shared * units)


def shares(s, sms, ada, ctas):
    """How many CTAs share a row tile's keys, of which `ctas` have some to do: as many as find room, each with a block of 128 keys; and no more than one CTA adds in the time that they save (of few rows more).
    Fitted to 130 shapes and either kernel, up to seventeen numbers each, on an H200: 1.5% above the best in the geometric mean, most 1.19 (docs/ledger.md)."""
    units, rows, blocks = s.B * s.Hkv * row_tiles(s), min(64, s.group * s.Sq), ceil_div(s.Sk, 128)
    room = sms * (2 if s.D > 64 else 4 if ada else 3) // max(ctas, 1)
    count = min(room, blocks, isqrt(192 * blocks // rows), MOST_SHARES, _GRID // s.Hkv, MOST_SCRATCH // (4 * units * rows * (s.D + 4)))
    if count <= 1 or units > MOST_COUNTERS:
        return 1
    of_one = ceil_div(blocks, count)
    if rows > 16 and blocks - of_one < 2 + ada:   # adding takes as long
        return 1
    return ceil_div(blocks, of_one)   # no more than have keys
