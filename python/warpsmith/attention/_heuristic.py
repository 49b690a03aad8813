"""Which kernel runs a problem, with which levers and which grid: pure functions of the shape. Tested in python/tests.

Figures behind the choices: docs/ledger.md.
"""
import functools
import heapq
from dataclasses import replace
from math import gcd, prod

from ._choice import SMS, Choice, Shape, ceil_div
from ._decode import DECODE, DECODE_NS, MEMORY_RATE, choose_decode, choose_more, choose_spread, decode_ns, decode_team_ns, spread   # some for those who measure


def grid_fits(s):
    """Whether a grid may have sequences and heads of K and V as its third and second dimensions."""
    return max(s.B, s.Hkv) <= 65535


def _split(D, keys, wgs, stages, causal, poly):
    return tuple(dict(WS_D=D, WS_KEYS=keys, WS_WGS=wgs, WS_STAGES=stages, WS_CAUSAL=int(causal), WS_POLY=poly).items())


def _group_bytes(D, keys, stages):
    return (2 * stages + 1) * keys * D


def choose_split(s, keys=None, wgs=None, stages=None, poly=2):
    """Keys over the warpgroups of a CTA: launch-bound shapes, and whatever no other kernel takes."""
    wgs = wgs or (2 if s.D == 256 else 4)
    keys = keys or (128 if s.D == 64 and s.Sk > 64 * wgs else 64)
    stages = stages or (1 if ceil_div(s.Sk, keys) <= wgs else 2)
    row_tiles = ceil_div(s.group * s.Sq, 64)
    shared = max(wgs * _group_bytes(s.D, keys, stages), wgs * 512 + wgs * s.D * 256)
    return Choice("split", _split(s.D, keys, wgs, stages, s.causal, poly), (row_tiles, s.Hkv, s.B), wgs * 128, shared)


def choose_tiny(s, keys=None, wgs=None, ctas=None, poly=None, blocks=None, trace=0, sms=SMS):
    """One tile of keys for each CTA of a cluster, with scales of a whole head. None where it does not fit."""
    rows = s.group * s.Sq
    count = lambda keys: ceil_div(rows, 64) * ceil_div(s.Sk, keys) * s.Hkv * s.B
    # Where CTAs of 64 rows by 128 keys are more than one for each SM, fewer and larger ones have less to exchange.
    keys = keys or (64 if s.D == 256 else 256 if s.D <= 128 and count(128) > sms else 128)
    ctas = ctas or min((n for n in (1, 2, 4, 8) if n * keys >= s.Sk), default=8)
    wgs = wgs or (2 if keys == 256 and count(256) > sms else 1)
    if s.Sk > keys * ctas or s.D // 16 % ctas or not grid_fits(s):
        return None
    blocks = blocks or max(1, (2 if keys == 256 or s.D == 256 else 4 if s.D == 64 else 3) // wgs)   # CTAs on an SM: registers left for the next launch, too
    poly = poly or (2 if s.D == 128 and keys == 256 else 3)   # of eight exponentials
    serial = s.D == 64 and wgs == 2 and ctas >= 4   # larger clusters find their places late unless two CTAs fit an SM: one span's scores in registers at a time
    ones = 0 if s.lse or serial else 8 * keys   # behind V^T: sums of weights that are made as codes
    shared = wgs * 64 * s.D + 3 * keys * s.D + ones + wgs * (s.D // 16 * 2048 + ctas * 512) + 128
    if shared > 232448:
        return None
    defines = dict(WS_D=s.D, WS_KEYS=keys, WS_WGS=wgs, WS_CTAS=ctas, WS_CAUSAL=int(s.causal), WS_GROUPED=int(s.group > 1), WS_POLY=poly, WS_BLOCKS=blocks)
    # Two row tiles of a causal CTA come from both ends, so that all CTAs have as much to do.
    folded = s.causal and wgs == 2
    if folded:
        defines["WS_FOLDED"] = 1
    if serial:
        defines["WS_BLOCKS"], defines["WS_SERIAL"] = 2, 1
    elif s.lse:
        defines["WS_LSE"] = 1
    if trace:
        defines["WS_TRACE"] = 1
    grid = (ceil_div(rows, 64 * wgs) * ctas, s.Hkv, s.B)
    return Choice("tiny", tuple(defines.items()), grid, wgs * 128, shared, boxes=(64, 128) if folded else (64 * wgs, keys), partial_floats=trace and grid[0] * grid[1] * grid[2] * wgs * 16)


MOST_TRANSPOSED = 1 << 28   # bytes of V^T: scratch that a call may ask for


def may_transpose(s):
    """Whether V^T can be made once, before, instead of in shared memory for each row tile."""
    return not s.packed and s.D != 64 and s.B * s.Hkv <= 65535 and transposed_bytes(s) <= MOST_TRANSPOSED


MUCH_TRANSPOSED = 24 << 20   # bytes of V^T
MAKERS = 32   # CTAs, an SM each, that make V^T while attention begins on the others: a power of two


def beside(s, wgs, sms=SMS):
    """Whether forward_e4m3.cu's V^T is made by some SMs while attention begins on the others: without the mask, where so many SMs have a row tile less to do than others, which takes as long as making it.
    Behind the mask, where SMs that begin later draw less, where there is much of it (H100, 2026-11-27, of 25 MB and more: D 128 1 to 3% faster, D 256 1 to 2%, but of 8,192 keys and more 2% slower; of less alike)."""
    row_tiles = ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B
    if not s.plain or s.causal:
        return s.plain and (s.D == 128 or s.Sk <= 4096) and transposed_bytes(s) >= MUCH_TRANSPOSED and row_tiles > 3 * sms
    fewer = ceil_div(row_tiles, sms) * sms - row_tiles
    of_tile = MANY["forward_e4m3", s.D, wgs, True, False][0][0]
    return fewer >= MAKERS and ceil_div(s.Sk, 128) * of_tile * 4 // 7 >= transposed_bytes(s) // 1200


def transposition(s, c, sms=SMS):
    """The launch of transpose.cu that makes V^T, (B, Hkv, D, keys in whole tiles of 128), for that choice: by few CTAs beside it, or before, by all SMs."""
    groups = 256 // s.D   # tiles at once
    ctas = MAKERS if c.tiles_per_worker else min(sms, ceil_div(ceil_div(s.Sk, 128) * s.Hkv * s.B, groups))
    return Choice("transpose", (("WS_D", s.D),), (ctas, 1, 1), 320 * groups, groups * (6 * 128 * s.D + 96))


def transposed_bytes(s):
    """Of that V^T."""
    return s.B * s.kv_heads * s.D * 128 * ceil_div(s.Sk, 128)


def lengths_transposition(s, made, kind, sms=SMS):
    """The same where only the device knows lengths, of so many bytes of V^T at most: in caches or pages (1), or one behind another (2)."""
    groups = 256 // s.D
    return Choice("transpose", (("WS_D", s.D), ("WS_LENS", kind)), (min(sms, ceil_div(made, 128 * s.D * groups)), 1, 1), 320 * groups, groups * (6 * 128 * s.D + 96))


def token_tiles(s, tokens_k):
    """Tiles of keys of a head that they take at most: each sequence's begin anew."""
    return tokens_k // 128 + s.B


def _scratch(s, made, floats=0):
    """What a Choice says of scratch: V^T, where it is made before, then so many floats."""
    return dict(transposes=made, partial_floats=(transposed_bytes(s) // 4 if made else 0) + floats)


FORWARD = {64: dict(wgs=3, poly=0, keep=0), 128: dict(wgs=3, poly=0, keep=0), 256: dict(wgs=2, poly=0, keep=0)}   # unless told otherwise


def forward_shared(D, wgs, plain=True, packed=False, causal=False, stages=None, wide=False):
    """Mirrors the shared-memory map of forward.cu: slots of Q, of K, of V and of V^T, barriers, and scales of tiles."""
    q, k, vt = stages or forward_stages(D, packed, causal or wide)
    bars = 512 if max(k, vt) > 4 else 256
    return q * 64 * wgs * D + (k + vt + (0 if packed else 2)) * 128 * D + bars + (0 if plain and not packed else 64)


def forward_stages(D, packed, causal):
    """Slots of Q, K and V^T, as forward.cu has them unless it is told otherwise. Queries of 16 bits have those behind the mask."""
    return (2, 4, 4) if D != 256 else (1, 2, 2) if not packed else (1, 4, 2) if causal else (2, 3, 2)


def choose_forward(s, wgs=None, made=False, keep=None, poly=None, turns=None, serial=None, looks=None, sms=SMS, persistent=True, trace=0, stages=None, plain=None):
    """Many queries over many keys. made: over V^T."""
    f, v_t = FORWARD[s.D], s.packed or made
    tiles_of = lambda wgs: ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B
    wgs = wgs or f["wgs"]
    serial = s.D == 64 and wgs == 4 if serial is None else serial   # their registers do not hold all scores of a tile
    keep, poly = f["keep"] if keep is None else keep, f["poly"] if poly is None else poly
    # Of few keys the largest weighs much, and is exact where it is the reference: one more tile's maxima are looked at. So where the first tile, the one in which keys end, has few (then up to 1.34 times as fast).
    few = not s.causal and (s.Sk <= 2048 or s.Sk % 128 > 0)
    # Scales by block take any layout of them, and at D 128 without a mask their code is 3% faster over few keys, 1% slower over 16,384.
    plain = s.plain and not (s.D == 128 and few) if plain is None else plain
    tiles = tiles_of(wgs)
    defines = dict(WS_D=s.D, WS_WGS=wgs, WS_CAUSAL=int(s.causal), WS_KEEP=keep, WS_POLY=poly)
    # Consumers in turns: 2 to 8% faster causal and at D 256 (where V^T comes causal only), 1 to 2% slower elsewhere.
    if (s.causal and not serial or s.D == 256 and not v_t) if turns is None else turns:
        defines["WS_TURNS"] = 1
    if serial:
        defines["WS_SERIAL"] = 1
    if few if looks is None else looks > 1:
        defines["WS_LOOKS"] = looks or 2
    defines.update(_layouts(s, plain, made))
    if stages:
        defines.update(zip(("WS_QSTAGES", "WS_KSTAGES", "WS_VSTAGES"), stages))
    if trace:
        defines["WS_TRACE"] = 1
    ctas = min(tiles, sms) if persistent else tiles
    return Choice("forward", tuple(defines.items()), (ctas, 1, 1), (wgs + 1) * 128, forward_shared(s.D, wgs, plain, v_t, s.causal, stages, s.wide),
                  row_tiles=ceil_div(s.Sq, 64 * wgs), section=_section(s, wgs, False, sms), boxes=(64, 128), **_scratch(s, made, trace and ctas * wgs * 8))


def _layouts(s, plain, made=False):
    """What the kernels for many queries are told of their tensors. plain: scales of whole heads, which V's own layout says already where it is packed."""
    if made:
        return {"WS_PACKED": 1, "WS_BLOCKS": 0} if plain else {"WS_PACKED": 1}
    defines = {"WS_PACKED": 1} if s.packed else {} if plain else {"WS_BLOCKS": 1}
    return {**defines, "WS_WIDEQ": 1} if s.wide else defines


FEW_HEADS, MANY_HEADS = 48, 64   # of K and V that CTAs work on side by side: up to the first the L2 serves them as one, from the second on drawn row tiles at D 64 come in sections
SECTIONS = (4, 8, 11, 12, 16, 22, 24, 32, 33, 44, 48, 64, 66, 96)   # heads of K and V of a section that are looked at: also those that fill rounds of 132 SMs
MOST_PIECES = 2048   # steps that looking at one may take, or row tiles that are drawn


def lengths_of(s, wgs, passes=False):
    """Tiles of keys of a head's causal row tiles, the longest first. passes: less of the last rows' ones for each consumer without rows, which passes over them: half of its share (H100, 2026-11-27: of four consumers three, two, one less 50, 25, 14%)."""
    rows = 64 * wgs
    lengths = [ceil_div(max(0, s.Sk - s.Sq + min(s.Sq, first + rows)), 128) for first in reversed(range(0, s.Sq, rows))]
    if passes:
        lengths[0] -= lengths[0] * (-s.Sq % rows // 64) // (2 * wgs)
    return lengths


def shared_out(lengths, heads, section, sms, of_keys=1, of_rows=0):
    """What the SM that has most to do has, as work_of of forward_work.cuh shares row tiles out: by sections of heads, the longest first, rounds forwards and backwards in turn."""
    more = [0] * (sms + 1)   # what each SM has more than the one before it
    at = 0
    for first in range(0, heads, section):
        together = min(section, heads - first)
        for length in lengths:
            of, end = of_keys * length + of_rows, at + together
            while at < end:
                turn, place = divmod(at, sms)
                n = min(end - at, sms - place)
                begin = sms - place - n if turn & 1 else place
                more[begin] += of
                more[begin + n] -= of
                at += n
    most = have = 0
    for x in more:
        have += x
        most = max(most, have)
    return most


def drawn_out(lengths, heads, section, sms, of_keys, of_rows):
    """When the last SM ends where each draws another row tile once it has none: by sections of heads, the longest first."""
    ends = [0] * sms
    for first in range(0, heads, section):
        for length in lengths:
            for _ in range(min(section, heads - first)):
                heapq.heapreplace(ends, ends[0] + of_keys * length + of_rows)
    return max(ends)


@functools.lru_cache(256)
def drawn_sections(s, wgs, made, sms=SMS):
    """(cycles, heads of a section) for causal row tiles of forward_e4m3.cu that are drawn. Small sections share the L2, where each megabyte of K and V beyond 8 costs 0.05% (D 256: 0.12%); sections of whole rounds leave SMs even, if the last
    one is no smaller. H100, 2026-11-27, times as long as the list that came before: 4x8x4096x256 by 2, 4, 6, 8, 16, 32 heads 1.004, 0.935, 1.06, 0.953, 0.966, 1.01; 4x16x4096x128 by 4, 8, 12, 16, 32, 64 1.016, 0.988, 1.037, 0.985, 0.979, 1.00."""
    kv_heads, lengths = s.Hkv * s.B, lengths_of(s, wgs, True)
    of_keys, of_rows = many_cycles(s, "forward_e4m3", wgs, made, False)
    rounds = lambda heads: heads * s.group * len(lengths) * 10 // (9 * sms)
    whole = [kv_heads]
    for k in range(2, kv_heads + 1):
        n = ceil_div(kv_heads, k)
        if not rounds(n):
            break
        if 4 * (kv_heads - (k - 1) * n) >= 3 * n:
            whole.append(n)
    least = lambda most: min((n for n in whole if rounds(n) >= most), default=kv_heads)
    alone = lambda n: min(60, max(0, (n * s.Sk * 2 * s.D >> 20) - 8) * (12 if s.D == 256 else 5) // 10)
    if len(lengths) * kv_heads * s.group > MOST_PIECES:   # so many are even
        n = least(2)
        return ceil_div((of_keys * sum(lengths) + of_rows * len(lengths)) * kv_heads * s.group, sms) * (1000 + alone(n)) // 1000, n * s.group
    cost = lambda n: drawn_out(lengths, kv_heads * s.group, n * s.group, sms, of_keys, of_rows) * (1000 + alone(n)) // 1000
    cycles, n = min((cost(n), n) for n in {least(1), least(2), least(4), kv_heads})
    return cycles, n * s.group


def _section(s, wgs, counted, sms=SMS):
    """How many heads' row tiles come together, the longest first. With more heads of K and V than FEW_HEADS their CTAs have none in common, and all read from memory (up to 8 to 13% slower); a section
    less than all leaves SMs uneven at its end, by up to half of the time: whichever costs least."""
    heads, kv_heads = s.Hq * s.B, s.Hkv * s.B
    if not s.causal:
        return 1
    if kv_heads <= FEW_HEADS:
        return heads
    if counted:   # drawn row tiles are even
        return s.group * ceil_div(kv_heads, ceil_div(kv_heads, MANY_HEADS))
    lengths = lengths_of(s, wgs)
    fits = [n for n in SECTIONS if n < kv_heads and ceil_div(kv_heads, n) * len(lengths) + ceil_div(len(lengths) * heads, sms) <= MOST_PIECES]
    if not fits:
        return heads
    # A row tile's start and end take as long as a tile and a half of keys.
    return s.group * min(fits + [kv_heads], key=lambda n: (shared_out(lengths, heads, n * s.group, sms, 2, 3) * (1000 + min(80, max(0, n - FEW_HEADS))), n))


def forward_f16_shared(wgs, packed=False):
    """Mirrors the shared-memory map of forward_f16.cu: slots of Q, of K, of V and of V in f16 (packed: with ones behind), barriers, scales, what consumers are told of two row
    tiles; and, aligned, the ones."""
    fixed = 2 * 64 * wgs * 64 + (4 + 2) * 128 * 64 + 256 + 2 * 32
    return fixed + 4 * 2 * (128 * 64 + 1024) + 64 if packed else ceil_div(fixed + 4 * 2 * 128 * 64, 1024) * 1024 + 2048


def busiest(s, wgs, sms=SMS, draws=False, passes=False):
    """(tiles of keys, row tiles) of the SM that has most to do; draws: where row tiles are drawn; passes: lengths_of."""
    heads = s.Hq * s.B
    row_tiles = ceil_div(ceil_div(s.Sq, 64 * wgs) * heads, sms)
    if not s.causal:
        return ceil_div(s.Sk, 128) * row_tiles, row_tiles
    lengths = lengths_of(s, wgs, passes)
    if row_tiles > 16 or draws:   # shared out evenly, but none is divided
        return max(lengths[0], ceil_div(sum(lengths) * heads, sms)), row_tiles
    return shared_out(lengths, heads, _section(s, wgs, False, sms), sms), row_tiles


def drawn(s, wgs, made=False, by_one=False, sms=SMS):
    """Whether row tiles are drawn from a counter, which only forward_f16.cu and forward_e4m3.cu by two tiles of keys do: over V^T behind the mask (but three consumers that load queries of 16 bits: C7511), and without it where V^T is made beside attention, as CTAs begin at different times then; of
    three rounds and more D 64 behind the mask, and two consumers over rows of V. (Three consumers over rows of V gain nothing behind the mask, and spill without it.)"""
    if by_one or not (s.plain or s.packed):
        return False
    many = ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B > 3 * sms
    if s.D == 64:
        return s.causal and not s.packed and many
    if made or s.packed:
        return s.causal and not (s.wide and wgs == 3) or made and beside(s, wgs, sms)
    return s.D == 128 and wgs == 2 and many


def _with_counter(c):
    return replace(c, defines=c.defines + (("WS_DRAWN", 1),), units=1)


def choose_forward_f16(s, wgs=2, sms=SMS, trace=0):
    """Many queries over many keys at D 64, with scales of a whole head or packed values. Its weights are linear between powers of two, which outputs hardly see, and log-sum-exps would (3%): it makes none."""
    defines = dict(WS_D=64, WS_WGS=wgs, WS_CAUSAL=int(s.causal))
    defines.update(_layouts(s, True))
    if trace:
        defines["WS_TRACE"] = 1
    ctas = min(ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B, sms)
    c = Choice("forward_f16", tuple(defines.items()), (ctas, 1, 1), (wgs + 1) * 128, forward_f16_shared(wgs, s.packed), row_tiles=ceil_div(s.Sq, 64 * wgs), section=_section(s, wgs, drawn(s, wgs, sms=sms), sms),
               boxes=(64, 128), partial_floats=trace and ctas * wgs * 8)
    return _with_counter(c) if drawn(s, wgs, sms=sms) else c


def forward_e4m3_shared(wgs, blocks=False, v_t=False, D=128):
    """Mirrors the shared-memory map of forward_e4m3.cu: slots of Q, of K, of V and of V^T (with ones behind), barriers, scales of tiles, and what consumers are told of row tiles."""
    k, vt = (3, 2) if D == 256 else (4, 4)
    tiles = (k + (0 if v_t else 2)) * 128 * D + vt * (128 * D + 1024)
    return 2 * 64 * wgs * D + tiles + 256 + (64 if blocks else 0) + 2 * 32


def short(s, wgs, v_t, by_one):
    """Whether fewer of forward_e4m3.cu's weights may be linear (at D 128 none), as there is no mask and keys are few: FA3 FP8 errs less then, as fewer of its weights lie far below their largest, while references of each step's own maxima do not care.
    H100, 2026-11-26, normal inputs, a half linear: 1.026 times FA3's error over 512 keys, 1.014 over 2,048, 1.003 over 16,384. Two consumers at D 128 have none that are."""
    return not (s.causal or by_one or s.fast) and (s.Sk < 4096 if s.D == 256 else wgs == 3 and (s.Sk <= 1536 if v_t else s.Sk < 1024))


def long(s, wgs, made, by_one):
    """Whether more of forward_e4m3.cu's weights are exact behind the mask, by three consumers over V^T that is made: over 16,384 keys the error was at 1.008 of FA3 FP8's in the mean, 1.0065 to 1.0225 in samples of 512 rows, and there it costs no time."""
    return s.causal and s.plain and made and wgs == 3 and not by_one and s.Sk > 8192


def choose_forward_e4m3(s, wgs=2, made=False, sms=SMS, trace=0, by_one=False):
    """Many queries over many keys at D 128, with any scales, packed or not, or at D 256 over V^T; no log-sum-exp. by_one: one tile of keys to a step, as scales by block want it, but for packed values."""
    plain = s.plain and not by_one
    blocks, draws = s.packed or not plain, drawn(s, wgs, made, by_one, sms)
    defines = dict(WS_D=s.D, WS_WGS=wgs, WS_CAUSAL=int(s.causal))
    defines.update(_layouts(s, plain, made))   # scales by block take any layout of them, and come one tile at a time
    if s.packed:
        defines["WS_EVEN"] = 1   # most row tiles have one scale of keys and one of values: pack_kv
    if s.fast:
        defines["WS_FAST"] = 1
    elif short(s, wgs, made or s.packed, by_one or not (s.plain or s.packed)):
        defines["WS_SHORT"] = 1
    elif long(s, wgs, made, by_one):
        defines["WS_LONG"] = 1
    if trace:
        defines["WS_TRACE"] = 1
    ctas = min(ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B, sms)
    c = Choice("forward_e4m3", tuple(defines.items()), (ctas, 1, 1), (wgs + 1) * 128, forward_e4m3_shared(wgs, blocks, s.packed or made, s.D), row_tiles=ceil_div(s.Sq, 64 * wgs),
               section=drawn_sections(s, wgs, made, sms)[1] if draws and s.causal else _section(s, wgs, False, sms), boxes=(64, 128), **_scratch(s, made, trace and ctas * wgs * 8))
    if draws and made and beside(s, wgs, sms):   # V^T is waited for tile by tile, which come in the order of these sections
        workers = MAKERS * 256 // s.D
        return replace(_with_counter(c), tiles_per_worker=workers.bit_length() - 1, tiles_per_unit=max(1, c.section // s.group), units=workers + 3)
    return _with_counter(c) if draws else c


# Of few.cuh's consumers: cycles of a tile of keys, hundredths of them where no consumer but one has rows, cycles of a row tile's start and end, and of each time that parts are added; then of a tile of keys
# and of a row tile where a CTA has several, whose starts and ends other warps hide; and hundredths of tiles of keys behind the mask. In forward_f16.cu (D 64) and forward_e4m3.cu; in forward.cu, which takes log-sum-exps, too; and with scales by block in forward_e4m3.cu or (D 64) forward.cu.
FEW = {64: {2: (1045, 81, 2945, 3570, 1160, 2667, 102), 4: (1715, 47, 4615, 4011, 1720, 4769, 104)}, 128: {2: (1395, 72, 4945, 5131, 1425, 4906, 108)}, 256: {1: (1910, 100, 5076, 5666, 2145, 4964, 103), 2: (3211, 80, 6945, 7980, 3562, 7197, 98)}}
FEW_EXACT = {64: {2: (1659, 83, 2913, 4357, 1639, 3402, 112), 3: (2064, 67, 4088, 4284, 1999, 4423, 112)}, 128: {2: (1927, 86, 4314, 5362, 2170, 3942, 107)}, 256: {1: (2075, 100, 5012, 5979, 2319, 5365, 106), 2: (2734, 79, 6908, 8381, 3309, 7219, 104)}}
FEW_BLOCKS = {64: {2: (2491, 79, 2225, 3572, 2412, 2163, 97), 3: (3072, 64, 3331, 3604, 2832, 2943, 98)}, 128: {2: (1754, 73, 4255, 4871, 1753, 4047, 105)}, 256: {1: (2043, 100, 3434, 5969, 2086, 4889, 110), 2: (3282, 90, 5154, 7221, 3342, 7238, 103)}}
FEW_FAST, FEW_BLOCKS_FAST = {128: {2: (1227, 65, 5496, 4798, 1321, 4875, 108)}}, {128: {2: (1758, 67, 4106, 4832, 1784, 3946, 98)}}   # of forward_e4m3.cu with weights linear between powers of two
FEW_TOKENS = {**FEW, 256: {1: (2101, 100, 5584, 5666, 1930, 4964, 103), 2: (3211, 80, 6250, 7980, 3206, 7197, 98)}}   # the first ones where sequences lie one behind another, by 503 calls at D 256 (H200, 2026-11-28)
FEW_MADE = {128: {2: (1216, 100, 6480, 0, 1125, 6165, 101), 3: (1837, 100, 10553, 0, 2222, 7825, 90)}, 256: {2: (2658, 100, 12331, 0, 2662, 8170, 98)}}   # over V^T, which is made before where only the device knows lengths
FEW_APART = {64: {2: 150, 3: 400, 4: 950}, 128: {2: 400, 3: 600}, 256: {1: 2000, 2: 5000}}   # cycles more of a row tile where its queries come row by row
SOME_WAYS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)   # that the choice looks at where sequences differ: each new number of tokens is chosen for
MOST_WAYS = 33   # CTAs of a row tile: whatever more would leave each is soon read
MOST_COUNTERS = 16383   # that a stream's slot has beside the one that row tiles are drawn from
MOST_PARTS = 1 << 26   # floats of parts of sequences one behind another


def few_fits(s):
    """Whether few.cuh can run it: row-major values; rows whose queries a product of 32 bits finds, and whose places 31 bits in 16 bytes, in slices too."""
    return not s.packed and not s.wide and s.group * s.group * s.Sq < 1 << 31 and s.Hq * s.Sq * s.D < 1 << 33


def few_boxes(group):
    """Whether 64 packed rows are whole groups of heads, so that their queries come by boxes of (D, heads of a group, queries) and not row by row."""
    return group <= 64 and group & (group - 1) == 0


def few_kernels(s, codes=FEW):
    """Those that can run it, each with the times of its consumers: without log-sum-exps the one for many queries, at D 64 with scales of whole heads alone; and forward.cu, whose row tiles have shorter ends."""
    exact, linear = [("forward", FEW_EXACT)], few_linear(s)
    if s.lse:
        return exact
    if not s.plain:
        return [("forward" if s.D == 64 else "forward_e4m3", FEW_BLOCKS_FAST if linear else FEW_BLOCKS)]
    return [("forward_f16" if s.D == 64 else "forward_e4m3", FEW_FAST if linear else codes), *exact]


def few_linear(s):
    """Whether forward_e4m3.cu's weights are linear between powers of two there: at D 256 that gains nothing, and where a key head has one row tile memory is what takes time."""
    return s.fast and s.D == 128 and s.group * s.Sq > 128


def takes_few(s, sms=SMS):
    """Whether it may where there are others: few rows, heads in groups, whose rows it packs, or no more than two row tiles for each SM, beyond which the others' order of work is the better one."""
    rows = s.group * s.Sq
    return few_fits(s) and (rows <= 256 or s.group > 1 or s.B * s.Hkv * ceil_div(rows, 128) <= 2 * sms)


def few_busiest(s, wgs, ways, sms=SMS, step=1, drawn=False):
    """Tiles of keys, of which a step takes so many, of the CTA that has most to do: a list that CTAs take in turn, a key head's row tiles one behind another, the last rows first; or row tiles drawn by whoever is free."""
    rows = s.group * s.Sq
    row_tiles = ceil_div(rows, 64 * wgs)
    share = ceil_div(ceil_div(s.Sk, 128 * step), ways) * step
    rounds = ceil_div(s.B * s.Hkv * row_tiles * ways, sms)
    if not s.causal or rounds == 1:
        return share * rounds
    lengths = [ceil_div(max(0, s.Sk - s.Sq + (min(rows, first + 64 * wgs) - 1) // s.group + 1), 128) for first in reversed(range(0, rows, 64 * wgs))]
    units = s.B * s.Hkv * row_tiles
    if ways > 1:   # shares of keys
        lengths, units = [ceil_div(n, ways) for n in lengths for _ in range(ways)], units * ways
        row_tiles = len(lengths)
    if drawn:
        return max(lengths[0], ceil_div(sum(lengths) * s.B * s.Hkv, sms))
    if rounds <= 16:
        return max(sum(lengths[t % row_tiles] for t in range(cta, units, sms)) for cta in range(sms))
    apart = gcd(sms, row_tiles)   # a CTA's row tiles are of as many kinds
    return max(rounds * sum(lengths[kind::apart]) * apart // row_tiles for kind in range(apart))


def few_ns(s, wgs, ways, sms=SMS, kernel=None, drawn=False):
    """About how long few.cuh takes with so many consumers and CTAs of a row tile, in nanoseconds: 4 to 10% off over 150 to 2,800 launches each (root of the mean square; H100, 2026-11-26)."""
    file, times = kernel or few_kernels(s)[0]
    rows, step = s.group * s.Sq, few_step(s, file)
    rounds = ceil_div(s.B * s.Hkv * ceil_div(rows, 64 * wgs) * ways, sms)
    of_keys, of_rows = few_cycles(s, wgs, ways, rows, rounds > 1, 10, times)
    reading = 2 * s.B * s.Hkv * s.Sk * s.D // MEMORY_RATE
    keys = few_busiest(s, wgs, ways, sms, step, drawn) * of_keys // 175
    return 2000 + max(keys, reading) + min(keys, reading) // 8 + rounds * of_rows * 4 // 7


def few_step(s, file):
    """Tiles of keys that a step takes."""
    return 2 if file == "forward_e4m3" and s.plain and s.D == 128 and not s.causal else 1


def few_cycles(s, wgs, ways, rows, several, adding, times):
    """Hundredths of cycles of a tile of keys, and cycles of a row tile, where a CTA has several or not; adding: tenths of what parts take that are added."""
    of_keys, alone, of_rows, of_adding, of_keys_each, of_rows_each, masked = times[s.D][wgs]
    if ways == 1 and several:
        of_keys, of_rows = of_keys_each, of_rows_each
    of_rows += ((ways > 1) + (ways > 4) + (ways > 16)) * of_adding * adding // 10 + (0 if few_boxes(s.group) else FEW_APART[s.D][wgs])
    idle, others = wgs - min(wgs, ceil_div(rows, 64)), wgs - 1   # consumers without rows, of all but one
    if idle:
        of_keys, of_rows = of_keys * (100 * others - (100 - alone) * idle) // (100 * others), of_rows * (10 * others - 3 * idle) // (10 * others)
    return of_keys * (masked if s.causal else 100), of_rows


def uneven_ns(s, wgs, ways, tokens_q, tokens_k, sms=SMS, kernel=None):
    """The same where sequences differ, of which the longest one's Sq and Sk and the tokens of all are known, and the others are taken for alike: whoever is free draws the next share of a row tile's keys, and somewhat less than half of
    the longest share is left for the end. By it the choice takes 1.019 times as long as the fastest of those measured: 2,722 calls of varlen, chunks and prompts, and 676 of 17 to 256 packed rows (H200, 2026-11-28; as if all were alike 1.047, 1.06)."""
    file, times = kernel or few_kernels(s)[0]
    step = few_step(s, file)
    def row_tiles_and_steps(n, q, k):
        """Row tiles of n sequences of so many tokens together, and the tiles of keys of each."""
        row_tiles = n * ceil_div(s.group * s.Sq, 64 * wgs) if q == n * s.Sq else ceil_div(s.group * q, 64 * wgs)
        return s.Hkv * row_tiles, ceil_div(max(1, (k - (q // 2 if s.causal else 0)) // max(1, n)), 128 * step) * step
    first, first_steps = row_tiles_and_steps(1, s.Sq, s.Sk)
    others, other_steps = row_tiles_and_steps(s.B - 1, max(0, tokens_q - s.Sq), max(0, tokens_k - s.Sk))
    shares = (first + others) * ways
    of_keys, of_rows = few_cycles(s, wgs, ways, max(1, s.group * tokens_q // s.B), shares > sms, 8, times)
    longest = ceil_div(ceil_div(s.Sk, 128 * step), ways) * step * of_keys // 100 + of_rows
    all_shares = (first * first_steps + others * other_steps) * of_keys // 100 + shares * of_rows
    working = (max(longest, all_shares // sms + longest * 9 // 20) if shares > sms else longest) * 4 // 7
    reading = 2 * tokens_k * s.kv_heads * s.D // MEMORY_RATE
    return 2000 + max(working, reading) + min(working, reading) // 8


def few_ways(s, wgs, sms=SMS, uneven=False, counters=MOST_COUNTERS):
    """Numbers of CTAs of a row tile that may pay: two tiles of keys for each, two row tiles for each SM, or any number where sequences differ, as long as counters and parts are few."""
    units = s.B * s.Hkv * ceil_div(s.group * s.Sq, 64 * wgs)
    most = min(counters // (4 * wgs), MOST_PARTS // (128 * wgs * (s.D // 4 + 4))) if uneven else 2 * sms
    most = max(1, min(MOST_WAYS, most // units, ceil_div(s.Sk, 256)))
    return [ways for ways in SOME_WAYS if ways <= most] if uneven else range(1, most + 1)


def few_shared(D, wgs, lengths):
    """Mirrors the map of forward_f16.cu and forward_e4m3.cu with WS_FEW and scales of whole heads: what they have for many queries, more where consumers are told lengths, and a factor for each row of Q."""
    told = 2 * (48 if lengths else 32) + (1 if D == 256 else 2) * 4 * 64 * wgs
    if D == 64:
        return ceil_div(2 * 64 * wgs * 64 + (4 + 2) * 128 * 64 + 4 * 2 * 128 * 64 + 256 + told, 1024) * 1024 + 2048
    if D == 128:
        return forward_e4m3_shared(wgs) - 2 * 32 + told
    return 64 * wgs * 256 + (5 - wgs) * 128 * 256 + 2 * (128 * 256 + 1024) + 256 + told   # one slot of Q, two of K, three of V less a consumer's, two of V^T


def few_exact(s, wgs):
    """What forward.cu is compiled with for it, and its shared memory."""
    defines = dict(WS_D=s.D, WS_WGS=wgs, WS_CAUSAL=int(s.causal), WS_POLY=0)
    if wgs > 1:
        defines["WS_TURNS"] = 1
    if not s.causal:
        defines["WS_LOOKS"] = 2
    return defines, forward_shared(s.D, wgs, s.plain) + forward_stages(s.D, False, False)[0] * 4 * 64 * wgs


def choose_few(s, wgs=None, ways=None, sms=SMS, lengths=False, tokens=None, counters=MOST_COUNTERS, codes=FEW, kernels=None):
    """Few packed rows, or row tiles too few for the SMs, over many keys, with its time: row tiles of whole groups of heads, and CTAs that share a row tile's keys. lengths: for with_lengths; tokens: of q and k, where sequences differ."""
    kernels = kernels or few_kernels(s, codes)
    time_of = lambda n, w, kernel: uneven_ns(s, n, w, *tokens, sms, kernel) if tokens else few_ns(s, n, w, sms, kernel, lengths)
    ns, ways, wgs, nth = min((time_of(n, w, kernel), w, n, i) for i, kernel in enumerate(kernels) for n in ([wgs] if wgs else kernel[1][s.D]) if n in kernel[1][s.D] for w in ([ways] if ways else few_ways(s, n, sms, bool(tokens), counters)))
    file = kernels[nth][0]
    row_tiles = ceil_div(s.group * s.Sq, 64 * wgs)
    ctas = s.B * s.Hkv * row_tiles * ways
    defines, shared = few_exact(s, wgs) if file == "forward" else (dict(WS_D=s.D, WS_WGS=wgs, WS_CAUSAL=int(s.causal)), few_shared(s.D, wgs, False) + (0 if s.plain else 64))
    defines["WS_FEW"] = 1
    if not s.plain:
        defines["WS_BLOCKS"] = 1
    if few_linear(s) and file == "forward_e4m3":
        defines["WS_FAST"] = 1
    return ns, Choice(file, tuple(defines.items()), (min(ctas, sms), 1, 1), 128 * wgs + 128, shared,
                      tiles_per_worker=ways, row_tiles=row_tiles, boxes=(64, 128), partial_floats=ctas * 128 * wgs * (s.D // 4 + 4) if ways > 1 else 0, units=ctas * 4 * wgs if ways > 1 else 0)


def with_lengths(c, kind):
    """The same where only the device knows lengths, in caches or pages (1) or one behind another (2): few.cuh's row tiles are drawn from a counter, and consumers are told more of them."""
    c, defines = replace(c, defines=c.defines + (("WS_LENS", kind),)), dict(c.defines)
    if "WS_FEW" not in defines:
        return c
    D, wgs = defines["WS_D"], defines["WS_WGS"]
    more = 2 * 48 if c.file == "forward" else 2 * 16 if c.transposes else few_shared(D, wgs, True) - few_shared(D, wgs, False)
    return replace(c, shared_bytes=c.shared_bytes + more, units=c.units + 1)


SPLIT = {(64, 64): (0, 1530, 2070), (64, 128): (2000, 2200, 2750), (128, 64): (0, 5650, 2400), (256, 64): (0, 3550, 2320)}   # by head dimension and keys


def split_ns(s, c, sms=SMS):
    """Of choose_split's c, with scales by block: rounds of CTAs, each warpgroup's tiles of keys one after the other."""
    defines = dict(c.defines)
    begin, of_rows, of_keys = SPLIT[s.D, defines["WS_KEYS"]]
    ctas = c.grid[0] * c.grid[1] * c.grid[2]
    alone = 20 * ctas - 300 if s.D == 64 and ctas <= sms else 0   # a round that is not full
    reading = 2 * s.B * s.Hkv * s.Sk * s.D // MEMORY_RATE
    return begin + alone + ceil_div(ctas, sms) * (of_rows + of_keys * ceil_div(s.Sk, defines["WS_KEYS"] * defines["WS_WGS"])) + reading // 3


# By (head dimension, keys, consumers), nanoseconds: a launch; as many CTAs as the SMs hold at once; one of them on each SM, two, and so on, as they come beside that; hundredths of what one more on each SM takes that the first of them
# takes; and hundredths more where heads come in groups, behind the mask, in clusters of 8, and with a log-sum-exp.
TINY = {(64, 128, 1): (2290, 3780, (450, 1590, 2780, 2900), 43, 10, 5, 0, 3), (64, 256, 1): (2870, 4000, (710, 2360), 65, 7, 5, 0, 8), (64, 256, 2): (3780, 3510, (1220,), 26, 10, -9, 0, 10),
        (128, 128, 1): (2940, 5400, (800, 3120, 3750), 18, 5, 0, 12, 2), (128, 256, 1): (3630, 7740, (1180, 5680), 64, 7, 3, 14, 6), (128, 256, 2): (4580, 5300, (1800,), 0, 12, -4, 19, 8), (256, 64, 1): (3040, 5090, (850, 2980), 25, 8, -2, 15, 1)}


def tiny_ns(s, c, sms=SMS):
    """Of choose_tiny's c: 6 to 14% off (root of the mean square)."""
    defines = dict(c.defines)
    of_launch, of_all, parts, jump, grouped, masked, eight, logs = TINY[s.D, defines["WS_KEYS"], defines["WS_WGS"]]
    if defines["WS_CTAS"] >= 4:   # a cluster lies within one of the card's parts, and some SMs of each are left over
        sms = sms * 10 // 11
    full, rest = divmod(c.grid[0] * c.grid[1] * c.grid[2] - 1, len(parts) * sms)   # at least one is left
    whole, part = divmod(rest + 1, sms)
    steps = (0, *parts, parts[-1])
    jump = jump if part and full + whole else 0
    ns = of_launch + full * of_all + steps[whole] + (steps[whole + 1] - steps[whole]) * (jump * sms + (100 - jump) * part) // (100 * sms)
    for more in (grouped if s.group > 1 else 0, masked if s.causal else 0, eight if defines["WS_CTAS"] == 8 else 0, logs if s.lse else 0):
        ns = ns * (100 + more) // 100
    return ns


def tiny_choices(s, sms=SMS):
    """Those of choose_tiny that fit."""
    found = [choose_tiny(s, keys, wgs, sms=sms) for D, keys, wgs in TINY if D == s.D]
    return [c for c in found if c]


# Of kernels for many queries: by file, head dimension, consumers, whether over V^T, and whether by one tile of keys, as scales by block want it: cycles of a tile of keys, and of a row tile's start and end, without the mask and behind it.
MANY = {("forward_f16", 64, 2, False, False): ((1160, 1840), (1160, 2075)), ("forward_f16", 64, 4, False, False): ((1750, 2700), (1760, 2800)),
        ("forward_e4m3", 128, 2, False, False): ((1460, 3120), (1505, 3450)), ("forward_e4m3", 128, 3, False, False): ((1990, 4520), (2060, 4100)),
        ("forward_e4m3", 128, 2, False, True): ((1800, 2480), (1830, 2890)), ("forward_e4m3", 128, 3, False, True): ((2380, 3450), (2375, 3605)),
        ("forward_e4m3", 128, 2, True, False): ((1370, 3230), (1385, 3555)), ("forward_e4m3", 128, 3, True, False): ((1830, 4595), (1845, 4300)),
        ("forward_e4m3", 128, 2, True, True): ((1655, 3535), (1755, 3710)), ("forward_e4m3", 128, 3, True, True): ((2250, 4430), (2290, 4330)),
        ("forward_e4m3", 256, 2, True, False): ((2520, 5945), (2485, 5890)),
        ("forward", 64, 2, False, False): (None, (1970, 2205)), ("forward", 64, 3, False, False): ((2145, 2925), (2330, 2765)), ("forward", 64, 4, False, False): ((2860, 4060), (2755, 3505)),
        ("forward", 64, 2, False, True): (None, (2365, 1420)), ("forward", 64, 3, False, True): ((2840, 1680), (2700, 1800)), ("forward", 64, 4, False, True): ((3520, 2950), (3315, 2940)),
        ("forward", 128, 3, False, False): ((2745, 3315), (2770, 3535)), ("forward", 128, 3, True, False): ((2545, 4590), (2630, 3725)),
        ("forward", 256, 2, False, False): ((3010, 4850), (3040, 4880)), ("forward", 256, 2, True, False): ((2800, 5040), (2825, 5120)),
        ("forward", 256, 2, False, True): ((4580, 2900), (5310, 2860)), ("forward", 256, 2, True, True): ((4090, 5305), (4780, 4890))}
# Of forward_e4m3.cu with weights linear between powers of two, by head dimension, consumers, whether over V^T, and whether by one tile of keys.
MANY_FAST = {(128, 2, False, False): ((1365, 2795), (1400, 3465)), (128, 3, False, False): ((1915, 3830), (1980, 4130)), (128, 2, True, False): ((1315, 2840), (1315, 3435)), (128, 3, True, False): ((1755, 3845), (1780, 4120)),
             (128, 2, False, True): ((1615, 2475), (1595, 2815)), (128, 3, False, True): ((2375, 3490), (2340, 3575)), (128, 2, True, True): ((1740, 3530), (1740, 3525)), (128, 3, True, True): ((2225, 4480), (2200, 4500)),
             (256, 2, True, False): ((2290, 5145), (2230, 6065))}
MADE = {(128, False): 400, (128, True): 510, (256, False): 560, (256, True): 700}   # nanoseconds for each megabyte of V^T that is made before, by head dimension and mask


def many_kernels(s, sms=SMS):
    """(file, consumers, whether V^T is made before, whether by one tile of keys) of all that can run it."""
    one = not s.packed and not s.plain
    if s.D == 64:
        found = [("forward", wgs, False, one) for wgs in ((2, 3, 4) if s.causal else (3, 4))] if s.lse or not (s.plain or s.packed) else [("forward_f16", wgs, False, False) for wgs in (2, 4)]
    elif s.D == 128 and not s.lse:
        found = [("forward_e4m3", wgs, made, by_one) for by_one in ((False,) if s.packed else sorted({one, True})) for made in (False, True) for wgs in (2, 3)]
        found = [x for x in found if (one or not x[3] or x[1:3] == (2, False) and not (s.causal and drawn(s, 2, sms=sms)))]
        if not one and not s.packed:
            found.append(("forward", 3, False, False))
    else:
        wgs = 3 if s.D == 128 else 2
        found = [("forward", wgs, made, one and s.D == 256) for made in (False, True)]
        if s.D == 256 and not one and not s.lse and s.Sk >= (768 if s.causal else 896):   # over fewer keys 1.02 times FA3 FP8's error
            found.append(("forward_e4m3", 2, not s.packed, False))
    return [x for x in found if not x[2] or may_transpose(s)]


def many_cycles(s, file, wgs, made, by_one):
    """Of a tile of keys, and of a row tile's start and end."""
    kind = s.D, wgs, s.D > 64 and (made or s.packed), by_one
    of_keys, of_rows = (MANY_FAST[kind] if s.fast and file == "forward_e4m3" else MANY[(file, *kind)])[s.causal]
    if file == "forward_e4m3" and short(s, wgs, made or s.packed, by_one):
        of_keys = of_keys * 104 // 100
    return of_keys, of_rows


def many_ns(s, file, wgs, made, by_one, sms=SMS):
    """Of one of them: 5 to 11% off (root of the mean square)."""
    of_keys, of_rows = many_cycles(s, file, wgs, made, by_one)
    draws, next_to = file != "forward" and drawn(s, wgs, made, by_one, sms), made and file == "forward_e4m3" and not by_one and beside(s, wgs, sms)
    memory = 2 * s.B * s.Hkv * s.Sk * s.D // MEMORY_RATE
    making = 0 if not made else 2000 if next_to and not s.causal else 1200 + transposed_bytes(s) * (MADE[s.D, s.causal] - (0 if not next_to else 200 if s.D == 128 else 80)) // 1000000
    if draws and s.causal and file == "forward_e4m3":   # as measured beside those that are not drawn
        return 2000 + making + max(drawn_sections(s, wgs, made, sms)[0] * (55 if s.D == 256 else 57) // 100, memory)
    tiles, row_tiles = busiest(s, wgs, sms, draws, file != "forward")
    if not s.causal and file == "forward_e4m3" and not by_one:   # two at a time
        tiles = row_tiles * 2 * ceil_div(s.Sk, 256)
    return 2000 + making + max(of_keys * tiles * 4 // 7, memory) + of_rows * row_tiles * 4 // 7   # at 1.75 GHz


def choose_many(s, sms=SMS):
    """Many queries over many keys, by the fastest kernel that gives what is wanted."""
    return timed_many(s, sms)[1]


def timed_many(s, sms=SMS):
    """The same with its time."""
    kernels = many_kernels(s, sms)
    ns, i = min((many_ns(s, *kernel, sms), i) for i, kernel in enumerate(kernels))
    file, wgs, made, by_one = kernels[i]
    if file == "forward_f16":
        return ns, choose_forward_f16(s, wgs, sms)
    if file == "forward_e4m3":
        return ns, choose_forward_e4m3(s, wgs, made, sms, by_one=by_one)
    return ns, choose_forward(s, wgs, made, sms=sms)


def choose(s, sms=SMS, few=True):
    """The kernel that we would run: what is thought to take least time. Packed V is taken by those for many queries over many keys alone; `packed_fits` says where that is what to run. few: few.cuh may."""
    if s.packed:
        return choose_many(s, sms)
    rows, even = s.group * s.Sq, spread(s, sms)
    if even:
        return even
    found = [(tiny_ns(s, c, sms), c) for c in tiny_choices(s, sms)] if s.plain else []
    if rows <= 256:
        found.append(choose_more(s, sms))
    if not s.plain and s.Sk <= 1024 and grid_fits(s):
        split = choose_split(s)
        found.append((split_ns(s, split, sms) * 110 // 100, split))
    if few and takes_few(s, sms):
        ns, c = choose_few(s, sms=sms)
        found.append((ns * (112 if rows <= (16 if s.D == 64 else 8) else 108 if rows > 256 and s.plain else 100) // 100, c))   # of few rows decode.cu reads as fast, and its error is less; of many the others' order of work is the better one
    if rows > 16:
        found.append(timed_many(s, sms))
    return min(found, key=lambda x: x[0])[1]


def packed_fits(s, sms=SMS):
    """Whether packed values are worth their kernel: where row-major ones with a scale for each head and a log-sum-exp would get it too."""
    return choose(replace(s, plain=True, packed=False, lse=True), sms, few=False).file == "forward"


RAGGED = {64: (64, 4, 2), 128: (64, 4, 2), 256: (64, 2, 1)}   # keys of a tile, warpgroups, stages


def choose_ragged(s, sms=SMS):
    """Sequences whose lengths only the device knows: Sq and Sk of `s` are the most that one may have."""
    keys, wgs, stages = RAGGED[s.D]
    row_tiles = ceil_div(s.group * s.Sq, 64)
    ctas = row_tiles * s.Hkv * s.B
    splits = max(1, min(sms // ctas if ctas < sms else 1, ceil_div(s.Sk, 2 * keys * wgs), 64))
    defines = dict(WS_D=s.D, WS_KEYS=keys, WS_WGS=wgs, WS_CAUSAL=int(s.causal), WS_GROUPED=1)
    shared = max(wgs * _group_bytes(s.D, keys, stages), wgs * 512 + wgs * s.D * 256) + 16
    units = ctas if splits > 1 else 0
    return Choice("ragged", tuple(defines.items()), (row_tiles, s.Hkv * splits, s.B), wgs * 128, shared, units=units, splits=splits,
                  partial_floats=units * splits * 64 * (s.D + 2))


def ragged_ns(s):
    """About how long choose_ragged's takes: each 64 rows read the keys. Nanoseconds on an H200."""
    return 8000 + ceil_div(s.group * s.Sq, 64) * (2 * s.B * s.Hkv * s.Sk * s.D) // (900 if s.D == 256 else 2000)


def choose_lengths(s, sms=SMS, page=None):
    """Caches of which each sequence uses a part, at most Sk keys, perhaps by pages of so many: few queries go to decode.cu, more to few.cuh, as far as pages are of their tiles, all else to ragged.cu."""
    rows, even = s.group * s.Sq, choose_spread(s, sms, page, lengths=True)
    if even and s.B > 2 and 2 * s.B * s.Hkv * s.Sk * s.D >= 40 << 20:   # of 1,196 random calls within 0.9% of the faster one's times in the geometric mean; by teams 7% (H200, 2026-11-28)
        return with_lengths(even, 1)
    found = []
    if few_fits(s) and (not page or page % 8 == 0 and (page % 128 == 0 or 128 % page == 0)):
        found.append(choose_caches(s, sms))
    else:
        found.append((prod(map(ragged_ns, some_used(s))), choose_ragged(s, sms)))
    if rows <= (8 if s.D == 256 and found[0][1].file != "ragged" else 256):   # of 9 to 16 rows few.cuh takes 0.89 of decode.cu's time at D 256 (1,570 random calls; H200, 2026-11-28), 1.06 to 1.10 at D 64 and 128
        ns, decode = choose_more(s, sms, page, some_used(s))
        ns = 0 if rows <= 16 else ns * 115 // 100
        found += [(ns, decode)] if not page or page % decode.boxes[1] == 0 else []
    choice = min(found, key=lambda x: x[0])[1]
    return choice if choice.file == "ragged" else with_lengths(choice, 1)


def some_used(s):
    """What may be used of caches, of which nobody knows but the device: all of them, and half as often an eighth, but by all sequences but one half of that (`some_tokens`). A choice is the one of the least product of times."""
    return [s, s, replace(s, Sk=min(s.Sk, max(s.Sq, s.Sk // 8)))]


def some_tokens(s):
    """Those of queries, and of keys."""
    return s.B * s.Sq, s.Sk + (s.B - 1) * s.Sk // 2


MOST_SHARES = 8   # for each SM, of row tiles whose keys CTAs share


def heads_apart(s):
    """The same with row tiles of one query head each: queries come by boxes so, rows of a tile see more different keys, and where queries are few row tiles are more and emptier. None at D 64 and 128, where nothing is gained (0.995 to
    1.00 of the time; H200, 2026-11-29), where 64 packed rows are whole groups of heads, or where row tiles would be too many for 32 bits."""
    counted = s.B * s.Hq * ceil_div(s.Sq, 64) * MOST_WAYS < 1 << 31
    return replace(s, Hkv=s.Hq, shared=s.group) if counted and s.D == 256 and not few_boxes(s.group) else None


def choose_caches(s, sms=SMS):
    """few.cuh over caches, with the product of its times, by whole groups of heads or by heads apart."""
    apart, (cost, c) = heads_apart(s), caches_of(s, sms)
    if apart:
        other, over = caches_of(apart, sms)
        if other // 1331 < cost // 1000:   # products of three times
            return other, replace(over, splits=s.group)
    return cost, c


def caches_of(s, sms=SMS):
    """The device decides how many CTAs share a row tile's keys, up to a number (few_decide of few.cuh), by the estimate of uneven_ns, or each sequence's own number; or over V^T, where nobody does."""
    found = []
    for i, kernel in enumerate(few_kernels(s)):
        for wgs in kernel[1][s.D]:
            units = s.B * s.Hkv * ceil_div(s.group * s.Sq, 64 * wgs)
            ways = [n for n in few_ways(s, wgs, sms, True) if n * units <= max(units, MOST_SHARES * sms)]
            cost = prod(min(uneven_ns(x, wgs, n, *some_tokens(x), sms, kernel) for n in ways) + (600 if len(ways) > 1 else 0) for x in some_used(s))
            found.append((cost, i, wgs, ways[-1]))
    cost, i, wgs, ways = min(found)
    if s.shared > 1:   # heads apart take 1.1 times as long by this estimate (526 calls; H200, 2026-11-29)
        cost = cost // 1000 * 1331
    kernel = few_kernels(s)[i]
    c = choose_few(s, wgs, min(ways, 32), sms, kernels=[kernel])[1]
    if c.tiles_per_worker > 1:
        c = told_times(s, c, kernel, s.group * s.Sq)
    if may_make(s, transposed_bytes(s)):
        for n in FEW_MADE[s.D]:
            if n == 3 or s.D == 256 or not s.causal:
                row_tiles = ceil_div(s.group * s.Sq, 64 * n)
                over = replace(choose_made(s, n, transposed_bytes(s)), grid=(min(s.B * s.Hkv * row_tiles, sms), 1, 1), row_tiles=row_tiles)
                cost, c = min((cost, c), (prod(made_ns(x, n, *some_tokens(x), sms) for x in some_used(s)), over), key=lambda x: x[0])
    return cost, c


def told_times(s, c, kernel, rows):
    """few.cuh's c with what the device has to know to decide: cycles of a tile of keys and of a row tile of so many rows, in upper halves where a CTA has several whose keys nobody shares, and of each time that parts are added."""
    wgs = dict(c.defines)["WS_WGS"]
    (alone, of_rows), (each, of_rows_each) = few_cycles(s, wgs, 2, rows, False, 0, kernel[1]), few_cycles(s, wgs, 1, rows, True, 0, kernel[1])
    return replace(c, tiles_per_unit=alone // 100 | each // 100 << 16, total_tiles=of_rows | of_rows_each << 16, section=kernel[1][s.D][wgs][3] * 8 // 10)


def may_make(s, made):
    """Whether so many bytes of V^T may be made before where only the device knows lengths: scales of whole heads, no log-sum-exps; at D 256 whose heads' factors recur every 64 rows; and where it is not too large."""
    return s.D in FEW_MADE and s.plain and not s.lse and (s.D == 128 or few_boxes(s.group)) and made <= MOST_TRANSPOSED


def made_bytes(s, tokens_k):
    """Of that V^T of sequences one behind another."""
    return token_tiles(s, tokens_k) * 128 * s.kv_heads * s.D


def made_ns(s, wgs, tokens_q, tokens_k, sms=SMS):
    """About how long few.cuh takes over that V^T, with its making. By it the choice takes 1.012 times as long as the fastest measured (1,344 calls one behind another; H200, 2026-11-28)."""
    making = 2059 + (tokens_k // 128 + s.B) * 128 * s.kv_heads * s.D * 540 // 1000000
    ns = making + uneven_ns(s, wgs, 1, tokens_q, tokens_k, sms, ("forward_e4m3", FEW_MADE))
    return ns if tokens_q == tokens_k else ns * 103 // 100   # of chunks less is known: the longest sequence need not be the one with most queries


def choose_made(s, wgs, made):
    """few.cuh over so many bytes of that V^T: as forward_e4m3.cu for many queries, and nobody shares keys."""
    defines = dict(WS_D=s.D, WS_WGS=wgs, WS_CAUSAL=int(s.causal), WS_PACKED=1, WS_BLOCKS=0, WS_FEW=1)
    told = 2 * 4 * (64 if s.D == 256 else 64 * wgs)   # factors of rows
    return Choice("forward_e4m3", tuple(defines.items()), (0, 1, 1), 128 * wgs + 128, forward_e4m3_shared(wgs, False, True, s.D) + told, tiles_per_worker=1, boxes=(64, 128),
                  transposes=True, partial_floats=made // 4)
