"""decode.cu's choice: few queries over long caches. Pure functions of the shape, as _heuristic.py's."""
from math import prod

from ._choice import SMS, Choice, ceil_div

DECODE = {64: (64, 8), 128: (32, 8), 256: (16, 8)}   # keys of a tile, warps


def choose_decode(s, keys=None, warps=None, stages=None, team=None, trace=0, sms=SMS, of_rows=None, page=None, used=()):
    """Few queries over long caches, perhaps in pages of so many keys: at most of_rows packed rows to a unit, 8, 16 or, up to D 128, 32. used: what may be used of them; all, if it says nothing."""
    rows, of_tile = s.group * s.Sq, DECODE[s.D]
    keys, warps = keys or of_tile[0], warps or of_tile[1]
    of_rows = of_rows or (8 if rows <= 8 else 16)
    row_tiles = ceil_div(rows, of_rows)
    per_unit, units = ceil_div(s.Sk, keys), s.B * s.Hkv * row_tiles
    team = min(team or decode_team(s, of_rows, units, per_unit, warps, sms, used), sms)
    ctas = team * min(units, sms // team)
    waits = s.D <= 128 and of_rows == 8   # kWaits: a warp more
    if waits and (2 * ceil_div(per_unit, team) <= warps or page and page % keys):   # a half tile for each warp: 2 to 8% faster, of twice as many 1 to 6% slower (H200, 2026-11-28)
        keys, per_unit = keys // 2, ceil_div(s.Sk, keys // 2)
    # One unit to a CTA: at D 256 the exchange lies in the ring, whose third stage is room for that of 16 rows.
    ring = s.D == 256 and ctas == team * units
    stages = stages or (3 if ring and of_rows == 16 else 2)
    defines = dict(WS_D=s.D, WS_KEYS=keys, WS_WARPS=warps, WS_STAGES=stages, WS_ROWS=of_rows, WS_CAUSAL=int(s.causal))
    if ring:
        defines["WS_RING"] = 1
    if row_tiles > 1:
        defines["WS_MORE"] = 1
    shared = warps * stages * 2 * keys * s.D + warps * 64 + (0 if ring else warps * 8 * (s.D + 4) * 4)
    if of_rows == 32:   # a copy of the queries for each warp
        shared = ceil_div(shared, 128) * 128 + warps * 32 * s.D * 2
    shared += warps * stages * (16 if s.D == 256 or of_rows >= 16 else 8) + 24   # WS_APART
    partial = units * team * of_rows * (s.D + (4 if s.D == 256 else 2)) if team > 1 or trace else 0
    if trace:
        defines["WS_TRACE"], partial = 1, partial + 8 * ctas
    return Choice("decode", tuple(defines.items()), (ctas, 1, 1), (warps + waits) * 32, shared, tiles_per_unit=per_unit, tiles_per_worker=team, total_tiles=units,
                  partial_floats=partial, row_tiles=row_tiles if row_tiles > 1 else 0, units=units * (of_rows // 8) * warps if team > 1 else 0, boxes=(8, keys))


def decode_team(s, of_rows, units, per_unit, warps, sms, used=()):
    """How many CTAs work on a unit together: what takes least time, or the least product of times of what may be used. Each warp has a tile, about."""
    most = min(ceil_div(per_unit, warps), sms)
    # One round of as many as there is room for, a half, a third or a quarter of that, or fewer in more rounds.
    teams = {*range(1, min(most, 16) + 1), *(max(1, min(most, sms // units // n)) for n in (1, 2, 3, 4))}
    teams = {ceil_div(per_unit, ceil_div(per_unit, team)) for team in teams}   # no more of them than have tiles
    # Many units are even enough without: their counters fit a stream's slot, and parts stay few.
    teams = [team for team in teams if team == 1 or units * team * (of_rows // 8) <= 15 * sms]
    order = lambda team: (-team * min(units, sms // team), team)
    of_all = min(teams, key=lambda team: (decode_team_ns(s, of_rows, units, per_unit, warps, team, sms), order(team)))
    if not used:
        return of_all
    # At least half as many as all of the caches want: fewer are worst where one sequence is long.
    ns = lambda team: prod(decode_team_ns(x, of_rows, units, ceil_div(x.Sk, DECODE[x.D][0]), warps, team, sms) for x in used)
    return min((team for team in teams if 2 * team >= of_all), key=lambda team: (ns(team), order(team)))


# By head dimension and rows of a unit, nanoseconds: of a launch; of a tile of the warp that has most, and of a CTA's; of what a team adds, and for each CTA of one; of a CTA's second unit beside these, and of each that follows; of a unit's row.
DECODE_NS = {(64, 8): (2079, 643, 64, 950, 25, 1005, 1036, 49), (64, 16): (2097, 580, 97, 1688, 36, 1295, 1230, 68), (64, 32): (2923, 937, 178, 1866, 55, 3112, 2739, 76), (128, 8): (2184, 606, 44, 749, 32, 1547, 1293, 151), (128, 16): (2519, 570, 89, 1611, 77, 1884, 1977, 109),
             (128, 32): (2314, 652, 154, 3481, 68, 1886, 847, 207), (256, 8): (2335, 331, 76, 1225, 50, 2178, 1195, 210), (256, 16): (2137, 708, 73, 2332, 146, 1279, 1030, 248)}
MEMORY_RATE = 2900   # bytes of K and V in a nanosecond that all SMs get from an H100's memory


def decode_team_ns(s, of_rows, units, per_unit, warps, team, sms):
    """About how long a launch takes, in nanoseconds, 6 to 14% off (root of the mean square over 85 to 1,081 launches each; H100, 2026-11-28: fitted to those, all but 16 rows at D 64 choose no better)."""
    of_launch, of_tile, of_cta, of_team, of_member, of_second, of_next, of_row = DECODE_NS[s.D, of_rows]
    rounds, tiles = ceil_div(units, max(1, min(units, sms // team))), ceil_div(per_unit, team)
    unit = ceil_div(tiles, warps) * of_tile + tiles * of_cta + min(of_rows, s.group * s.Sq) * of_row + (of_team + of_member * team if team > 1 else 0)
    following = of_second + of_next * (rounds - 2) if rounds > 1 else 0
    work, reading = rounds * unit, 2 * s.B * s.Hkv * s.Sk * s.D // MEMORY_RATE
    return of_launch + following + max(work, reading) + min(work, reading) // 3   # they hide most of each other


def decode_ns(s, c, sms=SMS):
    """About how long choose_decode's c takes, in nanoseconds."""
    return decode_team_ns(s, dict(c.defines)["WS_ROWS"], c.total_tiles, ceil_div(s.Sk, DECODE[s.D][0]), DECODE[s.D][1], c.tiles_per_worker, sms)


def choose_more(s, sms=SMS, page=None, used=()):
    """Decode of up to 256 packed rows: 8 where there are no more, 16 at a time, or 32, which want more room and have a longer end. With its time, or the product of times of what may be used."""
    rows = s.group * s.Sq
    found = [choose_decode(s, sms=sms, of_rows=n, page=page, used=used) for n in (8, 16, 32) if (s.D, n) in DECODE_NS and (rows <= 8 if n == 8 else rows > n // 2)]
    return min(((prod(decode_ns(x, c, sms) for x in used or (s,)), c) for c in found), key=lambda x: x[0])


# By head dimension and rows of a unit: tiles that a unit's end takes as long as, whole rounds of a CTA's warps (of 0 to 64, H200, 2026-11-28); units of no more are not cut. By MB of caches: hundredths of all SMs' tiles that teams have to reach.
SPREAD_ENDS = {(64, 8): 24, (64, 16): 24, (128, 8): 16, (128, 16): 24, (256, 8): 32}
SPREAD_EVEN = ((128, 95), (80, 90), (40, 80), (20, 70), (12, 60), (0, 0))


def choose_spread(s, sms=SMS, page=None, lengths=False):
    """Decode of at most 16 packed rows by equal stretches of all sequences' tiles, each of one head (WS_SPREAD). None where it does not fit. lengths: only the device knows them, and may give each CTA part of one unit alone."""
    rows, (keys, warps) = 8 if s.group * s.Sq <= 8 else 16, DECODE[s.D]
    per_unit, ends = ceil_div(s.Sk, keys), SPREAD_ENDS.get((s.D, rows))
    if ends is None or s.group * s.Sq > 16 or s.Hkv > sms or page and page % keys or s.B * (per_unit + ends) >= 1 << 28:
        return None
    ctas = s.Hkv * min(sms // s.Hkv, ceil_div(s.B * per_unit, warps))
    shared = warps * (4 * keys * s.D + 8 * rows + rows * (s.D + 4) * 4 + (32 if s.D == 256 or rows == 16 else 16)) + 24
    return Choice("decode", tuple(dict(WS_D=s.D, WS_KEYS=keys, WS_WARPS=warps, WS_STAGES=2, WS_ROWS=rows, WS_CAUSAL=int(s.causal), WS_SPREAD=1).items()), (ctas, 1, 1), (warps + (lengths and rows == 8 and s.D <= 128)) * 32, shared,
                  tiles_per_unit=per_unit, tiles_per_worker=1, total_tiles=s.B * s.Hkv, section=ends, partial_floats=2 * ctas * rows * (s.D + (4 if s.D == 256 else 2)), units=ctas * (rows // 8) * warps, boxes=(8, keys))


def spread(s, sms=SMS):
    """The same where teams leave so many SMs without work that it is faster: of 911 random shapes times are 0.9% above the faster one's in the geometric mean, by teams alone 2.6% (H200, 2026-11-28)."""
    c = choose_spread(s, sms)
    if c is None:
        return None
    teams = choose_more(s, sms)[1]
    busiest = ceil_div(teams.total_tiles, max(1, min(teams.total_tiles, sms // teams.tiles_per_worker))) * ceil_div(c.tiles_per_unit, teams.tiles_per_worker)
    even = c.total_tiles * c.tiles_per_unit * 100 // (sms * busiest)
    return c if even < next(most for mb, most in SPREAD_EVEN if 2 * s.B * s.Hkv * s.Sk * s.D >> 20 >= mb) else None
