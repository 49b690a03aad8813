"""Which kernel runs a problem, with which levers and which grid: pure functions of the shape. Tested in python/tests.

Figures behind the choices: docs/ledger.md.
"""
from dataclasses import dataclass, replace
from math import gcd

SMS = 132


@dataclass(frozen=True)
class Shape:
    """A problem as the heuristic sees it. `plain` says that scales are per head or tensor, `packed` that V comes transposed in whole tiles, `lse` that
    the log-sum-exp is wanted, `wide` that queries are of the output's 16 bits: with packed values only, and without log-sum-exps."""
    B: int
    Hq: int
    Hkv: int
    Sq: int
    Sk: int
    D: int
    causal: bool
    plain: bool = True
    packed: bool = False
    lse: bool = False
    wide: bool = False

    @property
    def group(self):
        return self.Hq // self.Hkv


@dataclass(frozen=True)
class Choice:
    """An instance (file and defines), its launch, and the figures that its parameters need."""
    file: str
    defines: tuple
    grid: tuple
    block: int
    shared_bytes: int
    tiles_per_unit: int = 0
    tiles_per_worker: int = 0
    total_tiles: int = 0
    row_tiles: int = 0
    section: int = 1
    partial_floats: int = 0
    units: int = 0
    boxes: tuple = ()   # rows of q's and of k's and v's boxes, where the kernel takes tensor maps
    splits: int = 1
    transposes: bool = False   # the kernel takes V^T, which a launch of transpose.cu makes before, in the first of its scratch

    @property
    def name(self):
        return "_".join([self.file] + [f"{k[3:].lower()}{v}" for k, v in self.defines])


def ceil_div(a, b):
    return -(-a // b)


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
    if s.Sk > keys * ctas or s.D // 16 % ctas:
        return None
    blocks = blocks or max(1, (2 if keys == 256 or s.D == 256 else 4 if s.D == 64 else 3) // wgs)   # CTAs on an SM: registers left for the next launch, too
    poly = poly or (2 if s.D == 128 and keys == 256 else 3)   # of eight exponentials
    shared = wgs * 64 * s.D + 3 * keys * s.D + wgs * (s.D // 16 * 2048 + ctas * 512) + 128
    if shared > 232448:
        return None
    defines = dict(WS_D=s.D, WS_KEYS=keys, WS_WGS=wgs, WS_CTAS=ctas, WS_CAUSAL=int(s.causal), WS_GROUPED=int(s.group > 1), WS_POLY=poly, WS_BLOCKS=blocks)
    # Two row tiles of a causal CTA come from both ends, so that all CTAs have as much to do.
    folded = s.causal and wgs == 2
    if folded:
        defines["WS_FOLDED"] = 1
    # Larger clusters find their places late unless two CTAs fit an SM: one span's scores in registers at a time.
    if s.D == 64 and wgs == 2 and ctas >= 4:
        defines["WS_BLOCKS"], defines["WS_SERIAL"] = 2, 1
    if trace:
        defines["WS_TRACE"] = 1
    grid = (ceil_div(rows, 64 * wgs) * ctas, s.Hkv, s.B)
    return Choice("tiny", tuple(defines.items()), grid, wgs * 128, shared, boxes=(64, 128) if folded else (64 * wgs, keys), partial_floats=trace and grid[0] * grid[1] * grid[2] * wgs * 16)


DECODE = {64: (64, 8, 3), 128: (32, 8, 3), 256: (16, 8, 2)}   # keys of a tile, warps, stages (D 256: three where a CTA has one unit)


def choose_decode(s, keys=None, warps=None, stages=None, team=None, trace=0, sms=SMS, of_rows=None):
    """Few queries over long caches: at most of_rows packed rows to a unit, 8, 16 or, up to D 128, 32."""
    k, w, n = DECODE[s.D]
    keys, warps = keys or k, warps or w
    rows = s.group * s.Sq
    of_rows = of_rows or (8 if rows <= 8 else 16)
    row_tiles = ceil_div(rows, of_rows)
    per_unit, units = ceil_div(s.Sk, keys), s.B * s.Hkv * row_tiles
    team = min(team or decode_team(units, per_unit, warps, sms), sms)
    ctas = team * min(units, sms // team)
    # One unit to a CTA: the exchange lies in the ring, and at D 256 a third stage finds room.
    ring = s.D == 256 and ctas == team * units
    stages = stages or (2 if of_rows == 32 else 3 if ring else n)
    defines = dict(WS_D=s.D, WS_KEYS=keys, WS_WARPS=warps, WS_STAGES=stages, WS_ROWS=of_rows, WS_CAUSAL=int(s.causal))
    if ring:
        defines["WS_RING"] = 1
    if row_tiles > 1:
        defines["WS_MORE"] = 1
    apart = s.D == 256 or of_rows >= 16   # WS_APART
    shared = warps * stages * 2 * keys * s.D + warps * 64 + (0 if ring else warps * 8 * (s.D + 4) * 4)
    if of_rows == 32:   # a copy of the queries for each warp
        shared = ceil_div(shared, 128) * 128 + warps * 32 * s.D * 2
    shared += warps * stages * (16 if apart else 8) + 16
    if shared > 232448:
        return None
    partial = units * team * of_rows * (s.D + (4 if s.D == 256 else 2)) if team > 1 or trace else 0
    if trace:
        defines["WS_TRACE"], partial = 1, partial + 8 * ctas
    return Choice("decode", tuple(defines.items()), (ctas, 1, 1), warps * 32, shared, tiles_per_unit=per_unit, tiles_per_worker=team, total_tiles=units,
                  partial_floats=partial, row_tiles=row_tiles if row_tiles > 1 else 0, units=units * (of_rows // 8) * warps if team > 1 else 0, boxes=(8, keys))


def decode_team(units, per_unit, warps, sms):
    """How many CTAs work on a unit together: as many as leave few idle, while each warp has two tiles."""
    most = max(1, per_unit // (2 * warps))
    one_round = max(1, min(most, sms // units))
    if units * one_round * 10 >= 9 * sms or units <= sms and one_round == most:
        return one_round
    # In hundredths of a percent; above 96% nothing is gained, and teams of four are best.
    busy = lambda t: min(9600, units * t * 10000 // (ceil_div(units, sms // t) * sms))
    return max(range(1, min(most, 32, sms) + 1), key=lambda t: (busy(t), -abs(t - 4)))


# Head dimension, causal: row tiles of 128 queries that read each tile of V; of outputs alone, the same with scales by block, with log-sum-exps.
TRANSPOSES = {(128, False): (24, 32, 32), (128, True): (32, 128, 128), (256, False): (12, 32, 16), (256, True): (24, 32, 64)}
LEAST_TRANSPOSED = {False: 1 << 19, True: 8 << 20}   # bytes of V^T, causal or not (of outputs alone not behind the mask): for less a launch costs more than it saves
LEAST_VISITS = {(128, False): 4096, (128, True): 16384, (256, False): 0, (256, True): 8192}   # of outputs alone: of tiles of keys by row tiles of 128 queries, seen or not: 20 to 65 us
MOST_TRANSPOSED = 1 << 28   # bytes of V^T: scratch that a call may ask for


def transposes(s):
    """Whether V^T is made once, before, instead of in shared memory for each row tile: where so many read each tile of V that the launch costs less."""
    alone, tiles, row_tiles = s.plain and not s.lse, ceil_div(s.Sk, 128), ceil_div(s.Sq, 128)
    least = 0 if alone and s.causal else LEAST_TRANSPOSED[s.causal]
    if s.packed or s.D == 64 or s.B * s.Hkv > 65535 or not least <= transposed_bytes(s) <= MOST_TRANSPOSED:
        return False
    # Over few keys a step of two tiles is half empty, or a launch costs more than all its row tiles save.
    if alone and (s.D == 256 and tiles < (3 if s.causal else 6) or odd_tiles(s) or s.B * s.Hq * row_tiles * tiles < LEAST_VISITS[s.D, s.causal]):
        return False
    return s.group * row_tiles >= TRANSPOSES[s.D, s.causal][2 if s.lse else 0 if s.plain else 1]


def odd_tiles(s):
    """Whether steps of two tiles of keys, of one or of three, are not worth it: at D 128 without a mask one by one is up to 39% faster, for nine the same."""
    return s.D == 128 and not s.causal and s.plain and not s.packed and not s.lse and s.Sk <= 384 and ceil_div(s.Sk, 128) % 2 == 1


def odd_cycles(s, sms=SMS):
    """Consumers, and how long the busiest SM works: two of forward_e4m3.cu by one tile, three of forward.cu."""
    tiles = ceil_div(s.Sk, 128)
    return {wgs: ceil_div(ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B, sms) * (of_keys * tiles + of_rows) for wgs, of_keys, of_rows in ((3, 2900, 3300), (2, 1840, 3085))}


def transposition(s):
    """The launch of transpose.cu that makes V^T, (B, Hkv, D, keys in whole tiles of 128)."""
    return Choice("transpose", (("WS_D", s.D),), (ceil_div(s.Sk, 128), s.Hkv * s.B, 1), 2 * s.D, 0)


def transposed_bytes(s):
    """Of that V^T."""
    return s.B * s.Hkv * s.D * 128 * ceil_div(s.Sk, 128)


def _scratch(s, floats=0):
    """What a Choice says of scratch: V^T, where it is made before, then so many floats."""
    made = transposes(s)
    return dict(transposes=made, partial_floats=(transposed_bytes(s) // 4 if made else 0) + floats)


FORWARD = {64: dict(wgs=3, poly=0, keep=0), 128: dict(wgs=3, poly=0, keep=0), 256: dict(wgs=2, poly=0, keep=0)}


def forward_shared(D, wgs, plain=True, packed=False, causal=False, stages=None, wide=False):
    """Mirrors the shared-memory map of forward.cu: slots of Q, of K, of V and of V^T, barriers, and scales of tiles."""
    q, k, vt = stages or forward_stages(D, packed, causal or wide)
    bars = 512 if max(k, vt) > 4 else 256
    return q * 64 * wgs * D + (k + vt + (0 if packed else 2)) * 128 * D + bars + (0 if plain and not packed else 64)


def forward_stages(D, packed, causal):
    """Slots of Q, K and V^T, as forward.cu has them unless it is told otherwise. Queries of 16 bits have those behind the mask."""
    return (2, 4, 4) if D != 256 else (1, 2, 2) if not packed else (1, 4, 2) if causal else (2, 3, 2)


def choose_forward(s, wgs=None, keep=None, poly=None, turns=None, wide=None, serial=None, looks=None, sms=SMS, persistent=True, trace=0, stages=None, plain=None):
    """Many queries over many keys."""
    f, v_t = FORWARD[s.D], s.packed or transposes(s)
    tiles_of = lambda wgs: ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B
    if s.D == 64 and not wgs:
        # Causal row tiles differ in length: where there are few, small ones are shared out more evenly.
        few = s.causal and tiles_of(3) < 2 * sms
        # Four consumers want 1.45 times as long as three for a third more rows; causal, where they keep apart better, 1.25 times.
        four = (125 if s.causal else 145) * ceil_div(tiles_of(4), sms) < 100 * ceil_div(tiles_of(3), sms)
        wgs = 2 if few else 4 if four else 3
    serial = s.D == 64 and wgs == 4 if serial is None else serial   # their registers do not hold all scores of a tile
    wgs, keep, poly = wgs or f["wgs"], f["keep"] if keep is None else keep, f["poly"] if poly is None else poly
    # Scales by block take any layout of them, and at D 128 without a mask their code is 3% faster over few keys, 1% slower over 16,384.
    plain = s.plain and not (s.D == 128 and not s.causal and s.Sk <= 2048) if plain is None else plain
    tiles = tiles_of(wgs)
    defines = dict(WS_D=s.D, WS_WGS=wgs, WS_CAUSAL=int(s.causal), WS_KEEP=keep, WS_POLY=poly)
    # Consumers in turns: 2 to 8% faster causal and at D 256 (where V^T comes causal only), 1 to 2% slower elsewhere.
    if (s.causal and not serial or s.D == 256 and not v_t) if turns is None else turns:
        defines["WS_TURNS"] = 1
    # Shared memory and the card's power bound D 256, and power D 128: Q is read once for a tile instead of twice. V^T leaves room for twice.
    if (s.D == 256 or s.D == 128 and not s.causal and not (v_t and s.Sk > 2048)) if wide is None else wide:
        defines["WS_WIDE"] = 1
    if serial:
        defines["WS_SERIAL"] = 1
    # Of few keys the largest weighs much, and is exact where it is the reference: one more tile's maxima are looked at.
    if (not s.causal and s.Sk <= 2048) if looks is None else looks > 1:
        defines["WS_LOOKS"] = looks or 2
    defines.update(_layouts(s, plain))
    if stages:
        defines.update(zip(("WS_QSTAGES", "WS_KSTAGES", "WS_VSTAGES"), stages))
    if trace:
        defines["WS_TRACE"] = 1
    ctas = min(tiles, sms) if persistent else tiles
    return Choice("forward", tuple(defines.items()), (ctas, 1, 1), (wgs + 1) * 128, forward_shared(s.D, wgs, plain, v_t, s.causal, stages, s.wide),
                  row_tiles=ceil_div(s.Sq, 64 * wgs), section=_section(s, wgs, False, sms), boxes=(64, 128), **_scratch(s, trace and ctas * wgs * 8))


def _layouts(s, plain):
    """What the kernels for many queries are told of their tensors. plain: scales of whole heads, which V's own layout says already where it is packed."""
    if transposes(s):
        return {"WS_PACKED": 1, "WS_BLOCKS": 0} if plain else {"WS_PACKED": 1}
    defines = {"WS_PACKED": 1} if s.packed else {} if plain else {"WS_BLOCKS": 1}
    return {**defines, "WS_WIDEQ": 1} if s.wide else defines


FEW_HEADS, MANY_HEADS = 48, 64   # of K and V that CTAs work on side by side: up to the first the L2 serves them as one, from the second on drawn row tiles come in sections
SECTIONS = (4, 8, 11, 12, 16, 22, 24, 32, 33, 44, 48, 64, 66, 96)   # heads of K and V of a section that are looked at: also those that fill rounds of 132 SMs
MOST_PIECES = 2048   # steps that looking at one may take


def lengths_of(s, wgs):
    """Tiles of keys of a head's causal row tiles, the longest first."""
    rows = 64 * wgs
    return [ceil_div(max(0, s.Sk - s.Sq + min(s.Sq, first + rows)), 128) for first in reversed(range(0, s.Sq, rows))]


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


FORWARD_F16 = {2: 1342, 4: 2055}   # consumers, and cycles of a tile of keys


def busiest(s, wgs, sms=SMS):
    """(tiles of keys, row tiles) of the SM that has most to do."""
    heads = s.Hq * s.B
    row_tiles = ceil_div(ceil_div(s.Sq, 64 * wgs) * heads, sms)
    if not s.causal:
        return ceil_div(s.Sk, 128) * row_tiles, row_tiles
    lengths = lengths_of(s, wgs)
    if row_tiles > 16 or drawn(s, wgs, sms):   # shared out evenly, but none is divided
        return max(lengths[0], ceil_div(sum(lengths) * heads, sms)), row_tiles
    return shared_out(lengths, heads, _section(s, wgs, False, sms), sms), row_tiles


def forward_f16_cycles(s, wgs, sms=SMS):
    """How long the busiest SM works."""
    return FORWARD_F16[wgs] * busiest(s, wgs, sms)[0]


def takes_forward_f16(s):
    """Whether forward_f16.cu runs it: its weights are linear between powers of two, which outputs hardly see, and log-sum-exps would (3%)."""
    return s.D == 64 and (s.plain or s.packed) and not s.lse


def drawn(s, wgs, sms=SMS):
    """Whether row tiles are drawn from a counter: causal ones of three rounds and more, by those kernels that stay fast so (D 256 gains nothing; three consumers at D 128 are serialised)."""
    return s.causal and s.plain and not s.packed and (s.D == 64 or s.D == 128 and wgs == 2) and ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B > 3 * sms


def _with_counter(c):
    return replace(c, defines=c.defines + (("WS_DRAWN", 1),), units=1)


def choose_forward_f16(s, wgs=None, sms=SMS, trace=0):
    """Many queries over many keys at D 64, with scales of a whole head or packed values, and no log-sum-exp."""
    wgs = wgs or min(FORWARD_F16, key=lambda n: (forward_f16_cycles(s, n, sms), n))
    defines = dict(WS_D=64, WS_WGS=wgs, WS_CAUSAL=int(s.causal))
    defines.update(_layouts(s, True))
    if trace:
        defines["WS_TRACE"] = 1
    ctas = min(ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B, sms)
    c = Choice("forward_f16", tuple(defines.items()), (ctas, 1, 1), (wgs + 1) * 128, forward_f16_shared(wgs, s.packed), row_tiles=ceil_div(s.Sq, 64 * wgs), section=_section(s, wgs, drawn(s, wgs, sms), sms),
               boxes=(64, 128), partial_floats=trace and ctas * wgs * 8)
    return _with_counter(c) if drawn(s, wgs, sms) else c


def forward_e4m3_shared(wgs, blocks=False, v_t=False, D=128):
    """Mirrors the shared-memory map of forward_e4m3.cu: slots of Q, of K, of V and of V^T (with ones behind), barriers, scales of tiles, and what consumers are told of row tiles."""
    k, vt = (3, 2) if D == 256 else (4, 4)
    tiles = (k + (0 if v_t else 2)) * 128 * D + vt * (128 * D + 1024)
    return 2 * 64 * wgs * D + tiles + 256 + (64 if blocks else 0) + 2 * 32


# Consumers, and cycles of a tile of keys, and of a row tile's start and end: two tiles of keys at a time (without scales by block), causal.
FORWARD_E4M3 = {(False, False): {2: (1710, 2400), 3: (2300, 3200)}, (False, True): {2: (1710, 2400), 3: (2140, 2980)},
                (True, False): {2: (1580, 2400), 3: (2230, 3200)}, (True, True): {2: (1600, 2600), 3: (2160, 3260)}}


def forward_e4m3_cycles(s, wgs, sms=SMS):
    """How long the busiest SM works."""
    of_keys, of_rows = FORWARD_E4M3[s.plain and not s.packed, s.causal][wgs]
    tiles, row_tiles = busiest(s, wgs, sms)
    return of_keys * tiles + of_rows * row_tiles


def takes_forward_e4m3(s):
    """Whether forward_e4m3.cu runs it: it makes no log-sum-exp, and at D 256 takes V^T with scales of whole heads alone."""
    return not s.lse and (s.D == 128 or s.D == 256 and s.plain and transposes(s))


def e4m3_wgs(s, sms=SMS):
    """Its consumers: over V^T three are slower."""
    two = s.D == 256 or transposes(s) and s.plain and not s.causal
    return 2 if two else min((2, 3), key=lambda n: forward_e4m3_cycles(s, n, sms))


def choose_forward_e4m3(s, wgs=None, sms=SMS, trace=0, by_one=False):
    """Many queries over many keys at D 128, with any scales, packed or not, or at D 256 over V^T that is made before; no log-sum-exp."""
    plain, made = s.plain and not by_one, transposes(s)
    blocks = s.packed or not plain
    wgs = wgs or e4m3_wgs(s, sms)
    defines = dict(WS_D=s.D, WS_WGS=wgs, WS_CAUSAL=int(s.causal))
    defines.update(_layouts(s, plain))   # scales by block take any layout of them, and come one tile at a time
    if trace:
        defines["WS_TRACE"] = 1
    ctas = min(ceil_div(s.Sq, 64 * wgs) * s.Hq * s.B, sms)
    c = Choice("forward_e4m3", tuple(defines.items()), (ctas, 1, 1), (wgs + 1) * 128, forward_e4m3_shared(wgs, blocks, s.packed or made, s.D), row_tiles=ceil_div(s.Sq, 64 * wgs),
               section=_section(s, wgs, drawn(s, wgs, sms), sms), boxes=(64, 128), **_scratch(s, trace and ctas * wgs * 8))
    return _with_counter(c) if drawn(s, wgs, sms) else c


# Of few.cuh's consumers: cycles of a tile of keys, hundredths of them where the last consumer has no rows, cycles of a row tile's start and end, and of each time that parts are added; then of a tile of keys
# and of a row tile where a CTA has several, whose starts and ends other warps hide. In forward_f16.cu (D 64) and forward_e4m3.cu; with scales by block in forward_e4m3.cu; and in forward.cu, which takes these and log-sum-exps.
FEW = {64: {2: (1195, 72, 1150, 3830, 1185, 2190), 4: (1880, 59, 2360, 4280, 1870, 3770)}, 128: {2: (1610, 69, 2620, 5100, 1610, 4180)},
       256: {1: (2060, 100, 2040, 8100, 2210, 4640), 2: (3280, 87, 3840, 8540, 3510, 6850)}}
FEW_BLOCKS = {128: {2: (1960, 74, 2180, 4600, 1980, 3730)}, 256: {1: (2710, 100, 985, 7100, 2620, 3940), 2: (3610, 84, 3725, 7900, 3590, 7325)}}
FEW_EXACT = {64: {2: (1850, 78, 460, 4155, 1815, 2525), 3: (2290, 70, 1835, 4235, 2180, 3470)}, 128: {2: (2150, 79, 1610, 5300, 2155, 3380)},
             256: {1: (2305, 100, 1630, 8280, 2350, 5430), 2: (3050, 75, 3475, 9390, 3515, 6640)}}
FEW_APART = {64: 400, 128: 500, 256: 3000}   # cycles more of a row tile where its queries come row by row
FEW_RATE = {64: 17, 128: 21, 256: 18}   # bytes of K and V in a cycle that an SM gets from memory where all ask
MOST_WAYS = 33   # CTAs of a row tile: whatever more would leave each is soon read
MOST_PARTS = 1 << 26   # floats of parts of sequences one behind another


def few_fits(s):
    """Whether few.cuh can run it: row-major values; rows whose queries a product of 32 bits finds, and whose places 31 bits in 16 bytes, in slices too."""
    return not s.packed and not s.wide and s.group * s.group * s.Sq < 1 << 31 and s.Hq * s.Sq * s.D < 1 << 33


def few_boxes(group):
    """Whether 64 packed rows are whole groups of heads, so that their queries come by boxes of (D, heads of a group, queries) and not row by row."""
    return group <= 64 and group & (group - 1) == 0


def few_kernels(s):
    """Those that can run it, each with the times of its consumers: without log-sum-exps the one for many queries, at D 64 with scales of whole heads alone; and forward.cu, whose row tiles have shorter ends."""
    exact = [("forward", FEW_EXACT)]
    if s.lse or not s.plain:
        return exact if s.lse or s.D == 64 else [("forward_e4m3", FEW_BLOCKS)]
    return [("forward_f16" if s.D == 64 else "forward_e4m3", FEW), *exact]


def takes_few(s, sms=SMS):
    """Whether it may where there are others: few rows, heads in groups, whose rows it packs, or no more than two row tiles for each SM, beyond which the others' order of work is the better one."""
    rows = s.group * s.Sq
    return few_fits(s) and (rows <= 256 or s.group > 1 or s.B * s.Hkv * ceil_div(rows, 128) <= 2 * sms)


def few_as_decode(s, sms=SMS):
    """Whether few.cuh reads large caches faster than decode.cu: with 9 to 16 rows, whose products are twice those of 8 there, at D 128, where each SM has a head at least (2 to 3%, at FA3 FP8's error instead of less)."""
    return s.plain and not s.lse and few_fits(s) and s.D == 128 and 8 < s.group * s.Sq <= 16 and s.Sk >= 4096 and s.B * s.Hkv * 10 >= 9 * sms


def few_busiest(s, wgs, ways, sms=SMS, step=1, drawn=False):
    """Tiles of keys, of which a step takes so many, of the CTA that has most to do: a list that CTAs take in turn, a key head's row tiles one behind another, the last rows first; or row tiles drawn by whoever is free."""
    rows = s.group * s.Sq
    row_tiles = ceil_div(rows, 64 * wgs)
    share = ceil_div(ceil_div(s.Sk, 128 * step), ways) * step
    rounds = ceil_div(s.B * s.Hkv * row_tiles * ways, sms)
    if not s.causal or ways > 1 or rounds == 1:
        return share * rounds
    lengths = [ceil_div(max(0, s.Sk - s.Sq + (min(rows, first + 64 * wgs) - 1) // s.group + 1), 128) for first in reversed(range(0, rows, 64 * wgs))]
    units = s.B * s.Hkv * row_tiles
    if drawn:
        return max(lengths[0], ceil_div(sum(lengths) * s.B * s.Hkv, sms))
    if rounds <= 16:
        return max(sum(lengths[t % row_tiles] for t in range(cta, units, sms)) for cta in range(sms))
    apart = gcd(sms, row_tiles)   # a CTA's row tiles are of as many kinds
    return max(rounds * sum(lengths[kind::apart]) * apart // row_tiles for kind in range(apart))


def few_ns(s, wgs, ways, sms=SMS, kernel=None, drawn=False):
    """About how long few.cuh takes with so many consumers and CTAs of a row tile, in nanoseconds: 5 to 8% off in the mean over 220 to 580 launches each, of 4 to 600 us (2026-11-26, on an H100; FEW_RATE of an H200)."""
    file, times = kernel or few_kernels(s)[0]
    of_keys, alone, of_rows, of_adding, of_keys_each, of_rows_each = times[s.D][wgs]
    rows = s.group * s.Sq
    row_tiles = ceil_div(rows, 64 * wgs)
    ctas = s.B * s.Hkv * row_tiles * ways
    rounds, adding = ceil_div(ctas, sms), (ways > 1) + (ways > 4) + (ways > 16)
    if ways == 1 and rounds > 1:
        percent = (104 if s.D < 256 else 96) if s.causal else 100
        of_keys, of_rows = of_keys_each * percent // 100, of_rows_each * percent // 100
    of_rows += 0 if few_boxes(s.group) else FEW_APART[s.D]
    if rows <= 64 * (wgs - 1):
        of_keys = of_keys * alone // 100
    of_keys = max(of_keys, 256 * s.D * min(sms, ctas) // (sms * FEW_RATE[s.D] * row_tiles))   # a head's row tiles read the same keys
    step = 2 if file == "forward_e4m3" and s.plain and s.D == 128 and not s.causal else 1
    return 3900 + (few_busiest(s, wgs, ways, sms, step, drawn) * of_keys + rounds * of_rows + adding * of_adding) * 4 // 7


def few_ways(s, wgs, sms=SMS):
    """Numbers of CTAs of a row tile that may pay: two tiles of keys for each, two row tiles for each SM."""
    units = s.B * s.Hkv * ceil_div(s.group * s.Sq, 64 * wgs)
    return range(1, max(1, min(MOST_WAYS, 2 * sms // units, ceil_div(s.Sk, 256))) + 1)


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
    if s.D == 256 and wgs == 2:
        defines["WS_WIDE"] = 1
    if not s.causal:
        defines["WS_LOOKS"] = 2
    return defines, forward_shared(s.D, wgs, s.plain) + forward_stages(s.D, False, False)[0] * 4 * 64 * wgs


def choose_few(s, wgs=None, ways=None, sms=SMS, lengths=False, first=False):
    """Few packed rows, or row tiles too few for the SMs, over many keys, with its time: row tiles of whole groups of heads, and CTAs that share a row tile's keys. lengths: for with_lengths. first: by the first of few_kernels alone."""
    kernels = few_kernels(s)[:1 if first else None]
    ns, ways, wgs, nth = min((few_ns(s, n, w, sms, kernel, lengths), w, n, i) for i, kernel in enumerate(kernels) for n in ([wgs] if wgs else kernel[1][s.D]) if n in kernel[1][s.D] for w in ([ways] if ways else few_ways(s, n, sms)))
    file = kernels[nth][0]
    row_tiles = ceil_div(s.group * s.Sq, 64 * wgs)
    ctas = s.B * s.Hkv * row_tiles * ways
    defines, shared = few_exact(s, wgs) if file == "forward" else (dict(WS_D=s.D, WS_WGS=wgs, WS_CAUSAL=int(s.causal)), few_shared(s.D, wgs, False) + (0 if s.plain else 64))
    defines["WS_FEW"] = 1
    if not s.plain:
        defines["WS_BLOCKS"] = 1
    return ns, Choice(file, tuple(defines.items()), (min(ctas, sms), 1, 1), 128 * wgs + 128, shared,
                      tiles_per_worker=ways, row_tiles=row_tiles, boxes=(64, 128), partial_floats=ctas * 128 * wgs * (s.D // 4 + 4) if ways > 1 else 0, units=ctas * 4 * wgs if ways > 1 else 0)


def with_lengths(c, kind):
    """The same where only the device knows lengths, in caches or pages (1) or one behind another (2): few.cuh's row tiles are drawn from a counter, and consumers are told more of them."""
    c, defines = replace(c, defines=c.defines + (("WS_LENS", kind),)), dict(c.defines)
    if "WS_FEW" not in defines:
        return c
    D, wgs = defines["WS_D"], defines["WS_WGS"]
    more = 2 * 48 if c.file == "forward" else few_shared(D, wgs, True) - few_shared(D, wgs, False)
    return replace(c, shared_bytes=c.shared_bytes + more, units=c.units + 1)


# About how long a call takes where queries are neither few nor many, in nanoseconds on an H200: a tenth off for most shapes measured.
DECODE_RATE = {16: {64: 3700, 128: 4400, 256: 3900}, 32: {64: 2900, 128: 3200}}   # bytes of K and V in a nanosecond that 132 SMs take with so many rows
DECODE_UNIT = {64: 3400, 128: 4400, 256: 5600}   # nanoseconds that a unit takes however few its keys are, where a CTA has several


def decode_ns(s, c):
    """Of choose_decode's c: each 16 or 32 rows take the keys again, the first from memory."""
    team, keys, of_rows = c.tiles_per_worker, c.boxes[1], dict(c.defines)["WS_ROWS"]
    units, tiles = ceil_div(c.total_tiles, c.grid[0] // team), ceil_div(c.tiles_per_unit, team)   # of a CTA
    unit = tiles * 2 * keys * s.D * SMS // DECODE_RATE[of_rows][s.D]
    return (14000 if of_rows == 32 else {64: 4500, 128: 6000, 256: 8000}[s.D]) + max(2 * s.B * s.Hkv * s.Sk * s.D // 4200, units * max(unit, DECODE_UNIT[s.D] if units > 1 else 0))


def choose_more(s, sms=SMS):
    """Decode of more than 16 packed rows: 16 at a time, or 32, which want more room and have a longer end. With its time."""
    found = [choose_decode(s, sms=sms, of_rows=n) for n in DECODE_RATE if s.D in DECODE_RATE[n]]
    return min(((decode_ns(s, c), c) for c in found), key=lambda x: x[0])


SPLIT = {64: (400, 0, 4600), 128: (0, 5650, 2400), 256: (800, 4050, 2150)}


def split_ns(s, c, sms=SMS):
    """Of choose_split's c, with scales by block: rounds of CTAs, each warpgroup's tiles of keys one after the other."""
    begin, of_rows, of_keys = SPLIT[s.D]
    defines = dict(c.defines)
    return begin + ceil_div(c.grid[0] * c.grid[1] * c.grid[2], sms) * (of_rows + of_keys * ceil_div(s.Sk, defines["WS_KEYS"] * defines["WS_WGS"]))


# Of kernels for many queries beside others, by consumers: cycles of a tile of keys, and of a row tile's start and end. Over V as it comes, and over V^T. (FORWARD_F16 and FORWARD_E4M3, which only choose consumers, are of longer
# rows: what they weigh is the difference.)
MANY = {64: {2: (1250, 1550), 4: (1910, 2700)}, 128: {2: (1600, 2900), 3: (2500, 3300)}, 256: {2: (3190, 3200)}}
MANY_MADE = {128: {2: (1400, 3700), 3: (2430, 2900)}, 256: {2: (2500, 7000)}}
# The same of forward.cu, and of forward_e4m3.cu with scales by block, by (D, whether V^T is made before).
MANY_EXACT = {(64, False): {2: (1870, 0), 3: (2100, 2400), 4: (2850, 3400)}, (128, False): {3: (2600, 2850)}, (128, True): {3: (2540, 4900)}, (256, False): {2: (2860, 3800)}, (256, True): {2: (2750, 5350)}}
MANY_BLOCKS = {(128, False): {2: (1770, 2050), 3: (2500, 3800)}, (128, True): {2: (1870, 3460), 3: (2330, 5480)}}


def many_ns(s, sms=SMS):
    """Of choose_many's."""
    if odd_tiles(s):
        return 4000 + min(odd_cycles(s, sms).values()) * 4 // 7
    made = transposes(s)
    if s.lse or not s.plain:
        c = choose_many(s, sms)
        wgs = dict(c.defines)["WS_WGS"]
        of_keys, of_rows = (MANY_EXACT if c.file == "forward" else MANY_BLOCKS)[s.D, made][wgs]
        tiles, row_tiles = busiest(s, wgs, sms)
        return 4000 + (of_keys * tiles + of_rows * row_tiles) * 4 // 7
    wgs = min(FORWARD_F16, key=lambda n: forward_f16_cycles(s, n, sms)) if s.D == 64 else e4m3_wgs(s, sms)
    of_keys, of_rows = (MANY_MADE if made else MANY)[s.D][wgs]
    tiles, row_tiles = busiest(s, wgs, sms)
    if not s.causal and (s.D == 128 or s.D == 256 and made):   # two at a time
        tiles = row_tiles * 2 * ceil_div(s.Sk, 256)
    return 4000 + (of_keys * tiles + of_rows * row_tiles) * 4 // 7   # at 1.75 GHz


def choose_some(s, sms=SMS, few=True, small=False):
    """More than 16 packed rows, and perhaps too few for a kernel for many queries, whose row tiles are 128 or 192 queries of one head. small: tiny.cu would fit, did it take scales by block."""
    rows, many = s.group * s.Sq, many_ns(s, sms)
    found = [x for x in ([choose_few(s, sms=sms)] if few and takes_few(s, sms) else []) if x[0] * 106 < many * 100]
    if rows <= 256:
        found.append(choose_more(s, sms))
    if small and (rows > 64 or s.Sk <= 1024):
        split = choose_split(s)
        found.append((split_ns(s, split, sms), split))
    ns, choice = min(found, key=lambda x: x[0], default=(0, None))
    return choice if choice and ns < many else choose_many(s, sms)


def choose_many(s, sms=SMS):
    """Many queries over many keys, by the fastest kernel that gives what is wanted."""
    if odd_tiles(s):
        cycles = odd_cycles(s, sms)
        return choose_forward(s, sms=sms) if cycles[3] <= cycles[2] else choose_forward_e4m3(s, 2, sms, by_one=True)
    take = choose_forward_f16 if takes_forward_f16(s) else choose_forward_e4m3 if takes_forward_e4m3(s) else choose_forward
    return take(s, sms=sms)


TINY_NS = {64: 6, 128: 9, 256: 15}   # of 64 rows by 128 keys


def choose(s, sms=SMS, few=True):
    """The kernel that we would run. Packed V is taken by those for many queries over many keys alone; `packed_fits` says where that is what to run. few: few.cuh may where there are others."""
    if s.packed:
        return choose_many(s, sms)
    rows = s.group * s.Sq
    tiny = choose_tiny(s, sms=sms)
    # In CTAs of 64 rows by 128 keys, however large those of this choice are.
    size = tiny.grid[0] * tiny.grid[1] * tiny.grid[2] * (tiny.block // 128) * max(1, dict(tiny.defines)["WS_KEYS"] // 128) if tiny else 0
    small = tiny and size <= (sms if rows <= 16 else 4 * sms)
    if small and s.plain:
        # Of many CTAs a round costs what one of the kernels for many queries does, which may have fewer. (Both times are those of their launches alone.)
        crowded = size > 2 * sms and not s.lse and 10 * (many_ns(s, sms) - 1700) < 9 * (3600 + TINY_NS[s.D] * size)
        return choose_many(s, sms) if crowded else tiny
    if rows <= 16:
        return choose_few(s, sms=sms, first=True)[1] if few_as_decode(s, sms) else choose_decode(s, sms=sms)
    return choose_some(s, sms, few, small)


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
    rows = s.group * s.Sq
    few = few_fits(s) and (not page or page % 8 == 0 and (page % 128 == 0 or 128 % page == 0))
    found = [choose_few(s, sms=sms, lengths=True) if few else (ragged_ns(s), choose_ragged(s, sms))]
    if rows <= 256:
        ns, decode = choose_more(s, sms) if rows > 16 else (0, choose_decode(s, sms=sms))
        found += [(ns, decode)] if not page or page % decode.boxes[1] == 0 else []
    choice = min(found, key=lambda x: x[0])[1]
    return choice if choice.file == "ragged" else with_lengths(choice, 1)


def choose_varlen(s, tokens_q, tokens_k, sms=SMS):
    """Sequences that lie one behind another, of so many tokens together and at most Sq and Sk each: estimated as if all were alike. Scratch is for whatever the device finds as
    their lengths, also where these overlap and are wrong; where that is too much, CTAs do not share keys."""
    if not few_fits(s) or s.B * s.Hkv * ceil_div(s.group * s.Sq, 64) * MOST_WAYS >= 1 << 31:   # numbers of row tiles, if all were the longest
        return choose_ragged(s, sms)
    alike = replace(s, Sq=min(s.Sq, ceil_div(tokens_q, s.B)), Sk=min(s.Sk, ceil_div(tokens_k, s.B)))
    c = choose_few(alike, sms=sms, lengths=True)[1]
    wgs, ways = dict(c.defines)["WS_WGS"], c.tiles_per_worker
    units = s.Hkv * (ceil_div(s.group * tokens_q, 64 * wgs) + s.B)   # whole row tiles, and for each sequence one that is not
    parts = s.B * s.Hkv * ceil_div(s.group * s.Sq, 64 * wgs) * ways
    floats = parts * 128 * wgs * (s.D // 4 + 4)
    if ways > 1 and floats > MOST_PARTS:
        ways = 1
    return with_lengths(replace(c, tiles_per_worker=ways, grid=(min(units * ways, sms), 1, 1), row_tiles=0, partial_floats=floats if ways > 1 else 0, units=parts * 4 * wgs if ways > 1 else 0), 2)


def choose_portable(s):
    """Every card that is no Hopper: 64 packed rows to a CTA, keys in turn."""
    defines = dict(WS_D=s.D, WS_CAUSAL=int(s.causal))
    return Choice("portable", tuple(defines.items()), (ceil_div(s.group * s.Sq, 64), s.Hkv, s.B), 128, 3 * 64 * (s.D + 8) * 2)
