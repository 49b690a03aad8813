"""Which kernel runs sequences that lie one behind another, of which the host knows the longest and the sum. Pure functions; tested in python/tests."""
from dataclasses import replace
from math import prod

from . import _heuristic as h
from ._choice import SMS, ceil_div
from ._decode import choose_spread


def choose_varlen(s, tokens_q, tokens_k, sms=SMS):
    """Sequences of so many tokens together and at most Sq and Sk each. At most 16 packed rows (D 256: eight) are decode.cu's, more few.cuh's: how many CTAs share a row tile's keys the host chooses, for sequences that are taken for alike
    but for one, or the device, where that would be wrong if most had one token."""
    if not h.few_fits(s) or s.B * s.Hkv * ceil_div(s.group * s.Sq, 64) * h.MOST_WAYS >= 1 << 31:   # numbers of row tiles, if all were the longest
        return h.choose_ragged(s, sms)
    decode = choose_spread(s, sms, lengths=True)
    if decode and s.B * (ceil_div(tokens_k, decode.boxes[1]) + decode.section) >= 1 << 30:   # tiles, if all sequences were all keys: wrong ones, which may overlap, must be counted, too
        decode = None
    if decode and (s.D > 64 or s.group * s.Sq <= 8 or s.Sk > 512):   # 27 calls of fewer keys take 1.07 to 1.22 times as long by it, 1,232 others 0.72 in the mean (H200, 2026-11-29)
        return h.with_lengths(decode, 2)
    ns, c = of_rows(s, tokens_q, tokens_k, sms)
    apart = h.heads_apart(s)
    if apart and min(tokens_q, s.B * s.Sq) >= APART_FROM * s.B:
        other, over = of_rows(apart, tokens_q, tokens_k, sms)
        if 5 * other < 6 * ns:   # of 1,138 calls 1.009 (as many queries as keys), 1.017 (chunks) and 1.027 (a prompt beside tokens) times as long as the fastest so (H200, 2026-11-29)
            c = replace(over, splits=s.group)
    return h.with_lengths(c, 2)


def of_rows(s, tokens_q, tokens_k, sms):
    """few.cuh's choice, with its time if sequences but the longest are alike."""
    made, tokens_q, tokens_k = h.made_bytes(s, tokens_k), min(tokens_q, s.B * s.Sq), min(tokens_k, s.B * s.Sk)   # what they can be at most
    ns, c = h.choose_few(s, sms=sms, lengths=True, tokens=(tokens_q, tokens_k) if s.B > 1 else None, counters=1 << 31, codes=h.FEW_TOKENS)
    few = c
    if h.may_make(s, made):
        if s.B == 1:   # by the same estimate: 211 calls of one sequence take 1.010 times as long as the fastest so, else 1.024
            ns = h.uneven_ns(s, dict(c.defines)["WS_WGS"], c.tiles_per_worker, tokens_q, tokens_k, sms, kernel_of(s, c))
        if s.shared > 1:   # heads apart take as much longer by this estimate
            ns = ns * 11 // 10
        consumers = [wgs for wgs in h.FEW_MADE[s.D] if wgs == 3 or s.D == 256 or not s.causal]   # behind the mask two of D 128 are hardly ever the fastest
        ns, c = min(((ns, c), *((h.made_ns(s, wgs, tokens_q, tokens_k, sms), h.choose_made(s, wgs, made)) for wgs in consumers)), key=lambda x: x[0])
    if c is few:
        c = decided(s, c, tokens_q, tokens_k, sms)
    return ns, replace(c, grid=(min(most_row_tiles(s, c, tokens_q) * c.tiles_per_worker, sms), 1, 1))


def most_row_tiles(s, c, tokens_q):
    """Of all key heads: whole ones, and for each sequence one that is not."""
    rows = 64 * dict(c.defines)["WS_WGS"]
    return s.Hkv * min(s.B * ceil_div(s.group * s.Sq, rows), ceil_div(s.group * tokens_q, rows) + s.B)


def kernel_of(s, c):
    """few.cuh's kernel that c is, with its times."""
    return next(x for x in h.few_kernels(s, h.FEW_TOKENS) if x[0] == c.file)


APART_FROM = 64   # queries of a sequence in the mean: else too many may have one, and row tiles of one row
REGRET = 110   # hundredths of the least time at which the device is asked, which takes it 0.6 us


def decided(s, c, tokens_q, tokens_k, sms=SMS):
    """c as it is (p.row_tiles is 0), or, where its number of CTAs would be far off if most sequences had one token, the kernel that is the fastest then, for the device to decide, up to a number (few_decide of few.cuh).
    Scratch is for as many shares as that takes at most, whatever lengths it finds."""
    if s.B == 1 or tokens_q >= s.B * s.Sq and tokens_k >= s.B * s.Sk:
        return replace(c, row_tiles=0)
    guesses = of_one_token(s, tokens_q, tokens_k)
    def least(kernel, wgs, groups):
        most = max(1, h.MOST_SHARES * sms // (s.Hkv * sum(n * ceil_div(s.group * q, 64 * wgs) for n, q, _ in groups)))
        return min(groups_cycles(s, kernel, wgs, ways, groups, sms) for ways in h.SOME_WAYS if ways <= max(1, min(32, most, ceil_div(s.Sk, 256))))
    kernel, wgs = kernel_of(s, c), dict(c.defines)["WS_WGS"]
    if all(100 * groups_cycles(s, kernel, wgs, c.tiles_per_worker, groups, sms) < REGRET * least(kernel, wgs, groups) for groups in guesses):
        return replace(c, row_tiles=0)
    _, i, wgs = min((prod(least(kernel, wgs, groups) for groups in guesses), i, wgs) for i, kernel in enumerate(h.few_kernels(s, h.FEW_TOKENS)) for wgs in kernel[1][s.D])
    kernel = h.few_kernels(s, h.FEW_TOKENS)[i]
    c = h.choose_few(s, wgs, 1, sms, kernels=[kernel])[1]
    most = min(32, ceil_div(s.Sk, 256))
    shares = min(most_row_tiles(s, c, tokens_q) * most, h.MOST_SHARES * sms)
    if shares < 2 * s.Hkv * ceil_div(s.group * tokens_q, 64 * wgs):   # there are no fewer row tiles than those
        return replace(c, row_tiles=0)
    c = h.told_times(s, c, kernel, max(1, s.group * tokens_q // s.B))
    return replace(c, tiles_per_worker=most, row_tiles=shares, partial_floats=shares * 128 * wgs * (s.D // 4 + 4), units=shares * 4 * wgs)


def of_one_token(s, tokens_q, tokens_k):
    """What sequences may be if all but a few have one query: (how many, queries, keys) of each kind, with most keys one of those few or one of the others, all else alike."""
    prompts = min(s.B, max(1, round((tokens_q - s.B) / max(1, s.Sq - 1))))
    keys = max(1, (tokens_k - s.Sk) // (s.B - 1))
    kinds = [(1, s.Sq, s.Sk), (prompts - 1, s.Sq, keys), (s.B - prompts, 1, keys)], [(1, 1, s.Sk), (prompts, s.Sq, keys), (s.B - prompts - 1, 1, keys)]
    return [[x for x in groups if x[0] > 0] for groups in (kinds if prompts < s.B else kinds[:1])]


def groups_cycles(s, kernel, wgs, ways, groups, sms=SMS):
    """About how many cycles few.cuh takes for sequences of such kinds, as few_decide estimates them."""
    step, tokens = h.few_step(s, kernel[0]), sum(n * q for n, q, _ in groups)
    tiles = lambda keys: max(1, ceil_div(keys, 128 * step))
    row_tiles = [n * ceil_div(s.group * q, 64 * wgs) for n, q, _ in groups]
    shares = sum(row_tiles) * s.Hkv * ways
    of_keys, of_rows = h.few_cycles(s, wgs, ways, max(1, s.group * tokens // s.B), shares > sms, 8, kernel[1])
    of_keys = of_keys // 100 * step
    longest = ceil_div(max(tiles(k) for _, _, k in groups), ways) * of_keys + of_rows
    work = s.Hkv * (sum(n * tiles(k - (q // 2 if s.causal else 0)) for n, (_, q, k) in zip(row_tiles, groups)) * of_keys + sum(row_tiles) * ways * of_rows) // sms
    return max(longest, work + longest * 9 // 20) if shares > sms else longest
