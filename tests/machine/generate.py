#!/usr/bin/env python3
"""Writes the vectors beside this file: operands and expected bits of instruction forms, by exact arithmetic.

Integers are Python's; floats are fractions, rounded once by `rounded`, as IEEE 754 and the PTX ISA (9.0) say. It shares no code with the machine.
The form of the files is in README.md. `python3 generate.py` writes them all; the operands are the same in every run.
"""
import functools
import math
import os
import random
from fractions import Fraction

HERE = os.path.dirname(os.path.abspath(__file__))
R = random.Random(20261122)

# ---------------------------------------------------------------- floats
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 10), "e4m3": (4, 3), "e5m2": (5, 2)}


def layout(fmt):
    e, m = FORMATS[fmt]
    return e, m, (1 << (e - 1)) - 1, 1 + e + m


def decode(fmt, bits):
    """('nan',), ('inf', sign) or ('num', sign, value)."""
    e, m, bias, width = layout(fmt)
    sign, field, frac = bits >> (width - 1) & 1, bits >> m & ((1 << e) - 1), bits & ((1 << m) - 1)
    if field == (1 << e) - 1 and not (fmt == "e4m3" and frac != 7):
        if fmt == "e4m3" or frac:
            return ("nan",)
        return ("inf", sign)
    if field == 0:
        return ("num", sign, Fraction(frac) * Fraction(2) ** (1 - bias - m))
    return ("num", sign, Fraction((1 << m) | frac) * Fraction(2) ** (field - bias - m))


NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "e4m3": 0x7F, "e5m2": 0x7F, "tf32": 0x7FFFFFFF}


def infinity(fmt, sign):
    e, m, _, width = layout(fmt)
    return sign << (width - 1) | ((1 << e) - 1) << m


def rounded(fmt, sign, value, mode, satfinite=False):
    """Bits of +-value (value >= 0)."""
    e, m, bias, width = layout(fmt)
    if value == 0:
        return sign << (width - 1)
    x = math.floor(math.log2(value)) if value.numerator.bit_length() < 900 and value.denominator.bit_length() < 900 else value.numerator.bit_length() - value.denominator.bit_length()
    while Fraction(2) ** x > value:
        x -= 1
    while Fraction(2) ** (x + 1) <= value:
        x += 1
    x = max(x, 1 - bias)
    unit = Fraction(2) ** (x - m)
    n, rest = divmod(value, unit)
    half = unit / 2
    up = {
        "rn": rest > half or (rest == half and n & 1),
        "rna": rest >= half,
        "rz": False,
        "rm": rest > 0 and sign,
        "rp": rest > 0 and not sign,
    }[mode]
    n = int(n) + (1 if up else 0)
    if n >= 1 << (m + 1):
        n, x = n >> 1, x + 1
    code = n if n < 1 << m else (x + bias) << m | (n - (1 << m))
    top = 0x7E if fmt == "e4m3" else infinity(fmt, 0) - 1
    if code > top:
        if satfinite or mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign):
            code = top
        else:
            code = infinity(fmt, 0)
    return sign << (width - 1) | code


def flush(fmt, bits):
    e, m, _, width = layout(fmt)
    return bits & (1 << (width - 1)) if bits >> m & ((1 << e) - 1) == 0 else bits


def total(fmt, terms, mode, nan):
    """Sum of signed terms ('num', sign, value) with IEEE's rules for zero."""
    if any(t[0] == "nan" for t in terms):
        return nan
    infs = {t[1] for t in terms if t[0] == "inf"}
    if len(infs) == 2:
        return nan
    if infs:
        return infinity(fmt, infs.pop())
    s = sum((-t[2] if t[1] else t[2]) for t in terms)
    if s == 0:
        signs = {t[1] for t in terms}
        sign = signs.pop() if len(signs) == 1 and all(t[2] == 0 for t in terms) else int(mode == "rm")
        return rounded(fmt, sign, Fraction(0), mode)
    return rounded(fmt, int(s < 0), abs(s), mode)


def product(a, b):
    if "nan" in (a[0], b[0]):
        return ("nan",)
    sign = a[1] ^ b[1]
    if "inf" in (a[0], b[0]):
        other = b if a[0] == "inf" else a
        return ("nan",) if other[0] == "num" and other[2] == 0 else ("inf", sign)
    return ("num", sign, a[2] * b[2])


def quotient(fmt, a, b, mode, nan):
    if "nan" in (a[0], b[0]):
        return nan
    sign = a[1] ^ b[1]
    if a[0] == "inf":
        return nan if b[0] == "inf" else infinity(fmt, sign)
    if b[0] == "inf":
        return rounded(fmt, sign, Fraction(0), mode)
    if b[2] == 0:
        return nan if a[2] == 0 else infinity(fmt, sign)
    return rounded(fmt, sign, a[2] / b[2], mode)


def root(fmt, a, mode, nan):
    if a[0] == "nan" or (a[1] and not (a[0] == "num" and a[2] == 0)):
        return nan
    if a[0] == "inf":
        return infinity(fmt, 0)
    if a[2] == 0:
        return rounded(fmt, a[1], a[2], mode)
    # Enough bits that the rest only has to say whether it is there.
    shift = 1200
    n = a[2] * Fraction(4) ** shift
    whole = n.numerator // n.denominator
    r = math.isqrt(whole)
    exact = r * r == n
    value = Fraction(r) + (0 if exact else Fraction(1, 3))
    return rounded(fmt, 0, value / Fraction(2) ** shift, mode)


def arithmetic(op, fmt, mode, ftz, sat, relu, *codes):
    nan = NAN.get(fmt)
    if ftz:
        codes = [flush(fmt, c) for c in codes]
    v = [decode(fmt, c) for c in codes]
    if op == "sub":
        v[1] = v[1] if v[1][0] == "nan" else (v[1][0], 1 - v[1][1]) + v[1][2:]
    if op in ("add", "sub"):
        r = total(fmt, v, mode, nan)
    elif op == "mul":
        p = product(*v)
        r = nan if p[0] == "nan" else infinity(fmt, p[1]) if p[0] == "inf" else rounded(fmt, p[1], p[2], mode)
    elif op == "fma":
        r = total(fmt, [product(v[0], v[1]), v[2]], mode, nan)
    elif op == "div":
        r = quotient(fmt, v[0], v[1], mode, nan)
    elif op == "rcp":
        r = quotient(fmt, ("num", 0, Fraction(1)), v[0], mode, nan)
    elif op == "sqrt":
        r = root(fmt, v[0], mode, nan)
    if r is None:
        return None
    width = layout(fmt)[3]
    if ftz:
        r = flush(fmt, r)
    if sat or relu:
        d = decode(fmt, r)
        if d[0] == "nan":
            r = 0 if sat else r
        elif d[1]:
            r = 0
        elif sat and (d[0] == "inf" or d[2] > 1):
            r = rounded(fmt, 0, Fraction(1), "rn")
    return r


def minmax(op, fmt, ftz, nan_wins, xorsign, a, b):
    width = layout(fmt)[3]
    top = 1 << (width - 1)
    if ftz:
        a, b = flush(fmt, a), flush(fmt, b)
    sign = (a ^ b) & top
    if xorsign:
        a, b = a & ~top, b & ~top
    x, y = decode(fmt, a), decode(fmt, b)
    if x[0] == "nan" or y[0] == "nan":
        if nan_wins or x[0] == y[0] == "nan":
            return NAN.get(fmt)
        r = b if x[0] == "nan" else a
    else:
        key = lambda d, c: ((-1) ** d[1] * (d[2] if d[0] == "num" else Fraction(2) ** 5000), -(c >> (width - 1)))
        less = key(x, a) < key(y, b)
        r = a if less == (op == "min") else b
    return r | sign if xorsign else r


# ---------------------------------------------------------------- operands
def special_floats(fmt):
    e, m, bias, width = layout(fmt)
    top, inf = 1 << (width - 1), ((1 << e) - 1) << m
    one = bias << m
    base = [0, 1, (1 << m) - 1, 1 << m, one, one + 1, one - 1, inf - 1, inf, inf | 1 << (m - 1), (bias + m) << m, (bias + m + 1) << m | 1, (bias - 1) << m]
    return base + [b | top for b in base]


def operand(ty):
    if ty == "pred":
        return R.getrandbits(1)
    if ty in ("f16x2", "bf16x2"):
        return operand(ty[:-2]) | operand(ty[:-2]) << 16
    if ty in FORMATS:
        e, m, bias, width = layout(ty)
        k = R.random()
        if k < 0.35:
            return R.choice(special_floats(ty))
        if k < 0.6:
            return R.getrandbits(1) << (width - 1) | (bias + R.randint(-3, 3)) << m | R.getrandbits(m)
        return R.getrandbits(width)
    width = int(ty[1:])
    k = R.random()
    if k < 0.3:
        return R.choice([0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, 1 << (width // 2)]) & ((1 << width) - 1)
    if k < 0.5:
        return R.getrandbits(R.randint(1, width))
    return R.getrandbits(width)


FILES = {}


def form(group, opcode, outs, ins, fun, rows=24, vectors=None):
    """Rows of one form; `fun` gives the outputs, or None where nothing is said."""
    flat = lambda ts, mark: [mark + t for t in ts]
    left = "|".join(flat(outs, "=")) if isinstance(outs, tuple) else ", ".join(flat(outs, "="))
    name = f"{opcode} {left}" + "".join(", " + i if i.startswith(("0", "!", "-", "{")) else ", $" + i for i in ins)
    types = [i.lstrip("!$") for i in ins if not i.startswith(("0", "-"))]
    lines = []
    for _ in range(rows):
        args = [operand(t) for t in types]
        got = fun(*args)
        if got is None:
            continue
        got = got if isinstance(got, tuple) else (got,)
        hexed = lambda v, ts: " ".join(f"{x & ((1 << bits(t)) - 1):0{bits(t) // 4 or 1}x}" for x, t in zip(v, ts))
        lines.append(f"{hexed(args, types)} -> {hexed(got, outs)}")
    FILES.setdefault(group, []).append(f"form {name}\n" + "\n".join(lines))


def bits(t):
    return 4 if t == "pred" else 32 if t in ("f16x2", "bf16x2", "tf32") else layout(t)[3] if t in FORMATS else int(t[1:])


def signed(v, n):
    v &= (1 << n) - 1
    return v - (1 << n) if v >> (n - 1) else v


def val(t):
    n = int(t[1:])
    return (lambda v: signed(v, n)) if t[0] == "s" else (lambda v: v & ((1 << n) - 1))


def bounds(t):
    n = int(t[1:])
    return (-(1 << (n - 1)), (1 << (n - 1)) - 1) if t[0] == "s" else (0, (1 << n) - 1)


def clamp(v, t):
    low, high = bounds(t)
    return max(low, min(high, v))


INTS = ["u16", "s16", "u32", "s32", "u64", "s64"]


def trunc_div(a, b):
    q = abs(a) // abs(b)
    return -q if (a < 0) != (b < 0) else q


def field(pos, length, n):
    """Of 32 bits their lower bytes count; of 64 the device clamps them (an H200)."""
    return (min(pos, 255), min(length, 255)) if n == 64 else (pos & 0xFF, length & 0xFF)


def integers():
    g = "integer"
    for t in INTS:
        n, x = int(t[1:]), val(t)
        f = lambda op, ins, fun: form(g, f"{op}.{t}", [t], ins, fun)
        f("add", [t, t], lambda a, b: a + b)
        f("sub", [t, t], lambda a, b: a - b)
        f("mul.lo", [t, t], lambda a, b: a * b)
        f("mul.hi", [t, t], lambda a, b: x(a) * x(b) >> n)
        f("mad.lo", [t, t, t], lambda a, b, c: a * b + c)
        f("mad.hi", [t, t, t], lambda a, b, c: (x(a) * x(b) >> n) + c)
        f("sad", [t, t, t], lambda a, b, c: abs(x(a) - x(b)) + c)
        f("div", [t, t], lambda a, b: trunc_div(x(a), x(b)) if x(b) else None if n == 16 else -1)
        f("rem", [t, t], lambda a, b: x(a) - x(b) * trunc_div(x(a), x(b)) if x(b) else None if n == 16 else -1)
        f("min", [t, t], lambda a, b: min(x(a), x(b)))
        f("max", [t, t], lambda a, b: max(x(a), x(b)))
        if t[0] == "s":
            f("abs", [t], lambda a: abs(x(a)))
            f("neg", [t], lambda a: -a)
        if n < 64:
            w = f"b{2 * n}"
            form(g, f"mul.wide.{t}", [w], [t, t], lambda a, b: x(a) * x(b))
            form(g, f"mad.wide.{t}", [w], [t, t, w], lambda a, b, c: x(a) * x(b) + c)
        if n > 16:
            form(g, f"bfind.{t}", ["u32"], [t], lambda a: ((~a if t[0] == "s" and x(a) < 0 else a) & (1 << n) - 1).bit_length() - 1)
            form(g, f"bfind.shiftamt.{t}", ["u32"], [t], lambda a: (lambda p: n - 1 - p if p >= 0 else -1)(((~a if t[0] == "s" and x(a) < 0 else a) & (1 << n) - 1).bit_length() - 1))

            def bfe(a, b, c):
                pos, length = field(b, c, n)
                top = 0 if t[0] == "u" or length == 0 else a >> min(pos + length - 1, n - 1) & 1
                return sum((((a >> (pos + i) & 1) if i < length and pos + i < n else top) << i) for i in range(n))

            form(g, f"bfe.{t}", [t], [t, "u32", "u32"], bfe, 40)
    for op, fun in [("add", lambda a, b: a + b), ("sub", lambda a, b: a - b)]:
        form(g, f"{op}.sat.s32", ["s32"], ["s32", "s32"], lambda a, b: clamp(fun(val("s32")(a), val("s32")(b)), "s32"))
    form(g, "mad.hi.sat.s32", ["s32"], ["s32"] * 3, lambda a, b, c: clamp((signed(a, 32) * signed(b, 32) >> 32) + signed(c, 32), "s32"))
    for t in ["u32", "s32"]:
        cut = lambda v: signed(v, 24) if t == "s32" else v & 0xFFFFFF
        form(g, f"mul24.lo.{t}", [t], [t, t], lambda a, b: cut(a) * cut(b))
        form(g, f"mul24.hi.{t}", [t], [t, t], lambda a, b: cut(a) * cut(b) >> 16)
        form(g, f"mad24.lo.{t}", [t], [t, t, t], lambda a, b, c: cut(a) * cut(b) + c)
        form(g, f"mad24.hi.{t}", [t], [t, t, t], lambda a, b, c: (cut(a) * cut(b) >> 16) + c)
    form(g, "mad24.hi.sat.s32", ["s32"], ["s32"] * 3, lambda a, b, c: clamp((signed(a, 24) * signed(b, 24) >> 16) + signed(c, 32), "s32"))
    for n in (32, 64):
        t = f"b{n}"
        form(g, f"popc.{t}", ["u32"], [t], lambda a: bin(a).count("1"))
        form(g, f"clz.{t}", ["u32"], [t], lambda a: n - a.bit_length())
        form(g, f"brev.{t}", [t], [t], lambda a: int(f"{a:0{n}b}"[::-1], 2))

        def bfi(a, b, c, d):
            pos, length = field(c, d, n)
            for i in range(length):
                if pos + i < n:
                    b = b & ~(1 << (pos + i)) | (a >> i & 1) << (pos + i)
            return b

        form(g, f"bfi.{t}", [t], [t, t, "u32", "u32"], bfi, 40)
    byte = lambda v, i, s: signed(v >> 8 * i, 8) if s == "s32" else v >> 8 * i & 255
    half = lambda v, i, s: signed(v >> 16 * i, 16) if s == "s32" else v >> 16 * i & 0xFFFF
    for s in ("u32", "s32"):
        for t in ("u32", "s32"):
            form(g, f"dp4a.{s}.{t}", ["b32"], ["b32"] * 3, lambda a, b, c: c + sum(byte(a, i, s) * byte(b, i, t) for i in range(4)))
            for k, name in ((0, "lo"), (2, "hi")):
                form(g, f"dp2a.{name}.{s}.{t}", ["b32"], ["b32"] * 3, lambda a, b, c: c + sum(half(a, i, s) * byte(b, i + k, t) for i in range(2)))
    for t in ("u32", "s32"):
        def szext(a, b, mode):
            p = b & 31 if mode == "wrap" else min(b, 32)
            if p == 0:
                return 0
            return signed(a, p) if t == "s32" else a & ((1 << p) - 1)

        form(g, f"szext.clamp.{t}", [t], [t, "u32"], lambda a, b: szext(a, b, "clamp"))
        form(g, f"szext.wrap.{t}", [t], [t, "u32"], lambda a, b: szext(a, b, "wrap"))
    form(g, "bmsk.clamp.b32", ["b32"], ["u32", "u32"], lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32))
    form(g, "bmsk.wrap.b32", ["b32"], ["u32", "u32"], lambda a, b: ((1 << (b & 31)) - 1) << (a & 31))
    for n, ts in ((2, ("u16x2", "s16x2")),):
        for t in ts:
            x = (lambda v: signed(v, 16)) if t[0] == "s" else (lambda v: v & 0xFFFF)
            both = lambda fun: lambda a, b: (fun(x(a), x(b)) & 0xFFFF) | (fun(x(a >> 16), x(b >> 16)) & 0xFFFF) << 16
            form(g, f"add.{t}", ["b32"], ["b32", "b32"], both(lambda a, b: a + b))
            form(g, f"min.{t}", ["b32"], ["b32", "b32"], both(min))
            form(g, f"max.{t}", ["b32"], ["b32", "b32"], both(max))
            if t[0] == "s":
                form(g, f"min.relu.{t}", ["b32"], ["b32", "b32"], both(lambda a, b: max(0, min(a, b))))
                form(g, f"max.relu.{t}", ["b32"], ["b32", "b32"], both(lambda a, b: max(0, a, b)))
    form(g, "min.relu.s32", ["b32"], ["b32", "b32"], lambda a, b: max(0, min(signed(a, 32), signed(b, 32))))
    form(g, "max.relu.s32", ["b32"], ["b32", "b32"], lambda a, b: max(0, signed(a, 32), signed(b, 32)))


COMPARE = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}


def float_compare(cmp, fmt, a, b, ftz=False):
    if ftz:
        a, b = flush(fmt, a), flush(fmt, b)
    x, y = decode(fmt, a), decode(fmt, b)
    nan = "nan" in (x[0], y[0])
    if cmp in ("num", "nan"):
        return nan == (cmp == "nan")
    if nan:
        return cmp.endswith("u") and cmp != "gt"
    key = lambda d: (-1) ** d[1] * (Fraction(2) ** 5000 if d[0] == "inf" else d[2])
    return COMPARE[cmp[:2]](key(x), key(y))


FLOAT_CMP = ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]


def comparisons():
    g = "compare"
    for t in INTS:
        x = val(t)
        for c, fun in COMPARE.items():
            form(g, f"setp.{c}.{t}", ["pred"], [t, t], lambda a, b: int(fun(x(a), x(b))), 12)
            for to, one in (("u32", 0xFFFFFFFF), ("f32", 0x3F800000)):
                form(g, f"set.{c}.{to}.{t}", [to], [t, t], lambda a, b: one if fun(x(a), x(b)) else 0, 8)
        for c in ("lt", "ge"):
            for bop, comb in (("and", lambda p, q: p & q), ("or", lambda p, q: p | q), ("xor", lambda p, q: p ^ q)):
                form(g, f"setp.{c}.{bop}.{t}", ("pred", "pred"), [t, t, "pred"], lambda a, b, q: (lambda p: (comb(p, q), comb(1 - p, q)))(int(COMPARE[c](x(a), x(b)))), 16)
    for fmt in ("f32", "f64", "f16", "bf16"):
        for c in FLOAT_CMP:
            form(g, f"setp.{c}.{fmt}", ["pred"], [fmt, fmt], lambda a, b: int(float_compare(c, fmt, a, b)), 24)
            if fmt in ("f32", "f16"):
                form(g, f"setp.{c}.ftz.{fmt}", ["pred"], [fmt, fmt], lambda a, b: int(float_compare(c, fmt, a, b, True)), 16)
            if fmt in ("f32", "f64"):
                for to, one in (("u32", 0xFFFFFFFF), ("f32", 0x3F800000)):
                    form(g, f"set.{c}.{to}.{fmt}", [to], [fmt, fmt], lambda a, b: one if float_compare(c, fmt, a, b) else 0, 10)
            if fmt in ("f16", "bf16"):
                pair = fmt + "x2"
                form(g, f"setp.{c}.{pair}", ("pred", "pred"), [pair, pair], lambda a, b: (int(float_compare(c, fmt, a & 0xFFFF, b & 0xFFFF)), int(float_compare(c, fmt, a >> 16, b >> 16))), 16)
    for t in ("b16", "b32", "b64", "f32", "f64"):
        form(g, f"selp.{t}", [t], [t, t, "pred"], lambda a, b, p: a if p else b, 8)
        form(g, f"slct.{t}.s32", [t], [t, t, "s32"], lambda a, b, c: a if signed(c, 32) >= 0 else b, 12)
        form(g, f"slct.{t}.f32", [t], [t, t, "f32"], lambda a, b, c: a if float_compare("ge", "f32", c, 0) else b, 24)


def logic():
    g = "logic"
    for n in (16, 32, 64):
        t = f"b{n}"
        for op, fun in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
            form(g, f"{op}.{t}", [t], [t, t], fun, 10)
        form(g, f"not.{t}", [t], [t], lambda a: ~a, 10)
        form(g, f"cnot.{t}", [t], [t], lambda a: int(a == 0), 16)
        form(g, f"shl.{t}", [t], [t, "u32"], lambda a, b: a << b if b < n else 0)
        for k in ("b", "u", "s"):
            form(g, f"shr.{k}{n}", [f"{k}{n}"], [f"{k}{n}", "u32"], lambda a, b: (signed(a, n) if k == "s" else a) >> min(b, n))
    for op, fun in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
        form(g, f"{op}.pred", ["pred"], ["pred", "pred"], fun, 12)
    form(g, "not.pred", ["pred"], ["pred"], lambda a: 1 - a, 6)
    lop = lambda a, b, c, table: sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))
    for table in (0x96, 0xE8, 0x1D):
        form(g, "lop3.b32", ["b32"], ["b32"] * 3 + [f"0x{table:02X}"], lambda a, b, c: lop(a, b, c, table))
    for bop, fun in (("or", lambda p, q: p | q), ("and", lambda p, q: p & q)):
        form(g, f"lop3.{bop}.b32", ("b32", "pred"), ["b32"] * 3 + ["0xE8", "pred"], lambda a, b, c, q: (lop(a, b, c, 0xE8), fun(int(lop(a, b, c, 0xE8) != 0), q)), 32)
    both = lambda a, b: b << 32 | a
    form(g, "shf.l.wrap.b32", ["b32"], ["b32", "b32", "u32"], lambda a, b, c: both(a, b) << (c & 31) >> 32)
    form(g, "shf.l.clamp.b32", ["b32"], ["b32", "b32", "u32"], lambda a, b, c: both(a, b) << min(c, 32) >> 32)
    form(g, "shf.r.wrap.b32", ["b32"], ["b32", "b32", "u32"], lambda a, b, c: both(a, b) >> (c & 31))
    form(g, "shf.r.clamp.b32", ["b32"], ["b32", "b32", "u32"], lambda a, b, c: both(a, b) >> min(c, 32))

    def prmt(mode):
        tables = {"f4e": [0x3210, 0x4321, 0x5432, 0x6543], "b4e": [0x5670, 0x6701, 0x7012, 0x0123], "rc8": [0x0000, 0x1111, 0x2222, 0x3333],
                  "ecl": [0x3210, 0x3211, 0x3222, 0x3333], "ecr": [0x0000, 0x1110, 0x2210, 0x3210], "rc16": [0x1010, 0x3232, 0x1010, 0x3232]}

        def f(a, b, c):
            data = both(a, b)
            sel = tables[mode][c & 3] if mode else c
            out = 0
            for i in range(4):
                s = sel >> 4 * i & 15
                v = data >> 8 * (s & 7) & 255
                out |= (0xFF * (v >> 7) if s & 8 else v) << 8 * i
            return out

        return f

    for mode in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        form(g, "prmt.b32" + ("." + mode if mode else ""), ["b32"], ["b32"] * 3, prmt(mode))


def floats():
    for fmt in ("f32", "f64"):
        g = "float_" + fmt
        n = 40
        for mode in ("rn", "rz", "rm", "rp"):
            flags = [("", 0, 0), (".ftz", 1, 0), (".sat", 0, 1), (".ftz.sat", 1, 1)] if fmt == "f32" else [("", 0, 0)]
            for suffix, ftz, sat in flags:
                for op in ("add", "sub", "mul"):
                    form(g, f"{op}.{mode}{suffix}.{fmt}", [fmt], [fmt, fmt], lambda a, b: arithmetic(op, fmt, mode, ftz, sat, 0, a, b), n)
                form(g, f"fma.{mode}{suffix}.{fmt}", [fmt], [fmt] * 3, lambda a, b, c: arithmetic("fma", fmt, mode, ftz, sat, 0, a, b, c), n)
                if not sat:
                    form(g, f"div.{mode}{suffix}.{fmt}", [fmt], [fmt, fmt], lambda a, b: arithmetic("div", fmt, mode, ftz, 0, 0, a, b), n)
                    for op in ("rcp", "sqrt"):
                        form(g, f"{op}.{mode}{suffix}.{fmt}", [fmt], [fmt], lambda a: arithmetic(op, fmt, mode, ftz, 0, 0, a), n)
        top = 1 << (layout(fmt)[3] - 1)
        form(g, f"copysign.{fmt}", [fmt], [fmt, fmt], lambda a, b: a & top | b & ~top)
        if fmt == "f32":
            form(g, "neg.f32", [fmt], [fmt], lambda a: NAN[fmt] if decode(fmt, a)[0] == "nan" else a ^ top)
            form(g, "abs.f32", [fmt], [fmt], lambda a: NAN[fmt] if decode(fmt, a)[0] == "nan" else a & ~top)
        for op in ("min", "max"):
            form(g, f"{op}.{fmt}", [fmt], [fmt, fmt], lambda a, b: minmax(op, fmt, 0, 0, 0, a, b), n)
        if fmt == "f32":
            for op in ("min", "max"):
                for ftz in ("", ".ftz"):
                    for nan in ("", ".NaN"):
                        if ftz or nan:
                            form(g, f"{op}{ftz}{nan}.{fmt}", [fmt], [fmt, fmt], lambda a, b: minmax(op, fmt, ftz, nan, 0, a, b), n)
                        form(g, f"{op}{ftz}{nan}.xorsign.abs.{fmt}", [fmt], [fmt, fmt], lambda a, b: None if "nan" in (decode(fmt, a)[0], decode(fmt, b)[0]) else minmax(op, fmt, ftz, nan, 1, a, b), n)
        kinds = {"finite": lambda d, c: d[0] == "num", "infinite": lambda d, c: d[0] == "inf", "number": lambda d, c: d[0] != "nan", "notanumber": lambda d, c: d[0] == "nan",
                 "normal": lambda d, c: d[0] == "num" and flush(fmt, c) == c, "subnormal": lambda d, c: d[0] == "num" and d[2] != 0 and flush(fmt, c) != c}
        for kind, fun in kinds.items():
            form(g, f"testp.{kind}.{fmt}", ["pred"], [fmt], lambda a: int(fun(decode(fmt, a), a)), 24)
    for fmt in ("f16", "bf16"):
        g = "float_" + fmt
        pair = lambda fun: lambda *v: (lambda low, high: low | high << 16)(fun(*[x & 0xFFFF for x in v]), fun(*[x >> 16 for x in v]))
        for suffix, ftz, sat, relu in [("", 0, 0, 0), (".ftz", 1, 0, 0), (".sat", 0, 1, 0), (".ftz.sat", 1, 1, 0), (".relu", 0, 0, 1), (".ftz.relu", 1, 0, 1)]:
            if fmt == "bf16" and (ftz or sat):
                continue
            fma = lambda a, b, c: arithmetic("fma", fmt, "rn", ftz, sat, relu, a, b, c)
            form(g, f"fma.rn{suffix}.{fmt}", [fmt], [fmt] * 3, fma, 40)
            form(g, f"fma.rn{suffix}.{fmt}x2", [fmt + "x2"], [fmt + "x2"] * 3, pair(fma), 24)
            if not relu:
                for op in ("add", "sub", "mul"):
                    two = lambda a, b: arithmetic(op, fmt, "rn", ftz, sat, 0, a, b)
                    form(g, f"{op}{suffix}.{fmt}", [fmt], [fmt, fmt], two, 40)
                    form(g, f"{op}.rn{suffix}.{fmt}x2", [fmt + "x2"], [fmt + "x2"] * 2, pair(two), 24)
        for op in ("min", "max"):
            for nan in ("", ".NaN"):
                one = lambda a, b: minmax(op, fmt, 0, nan, 0, a, b)
                form(g, f"{op}{nan}.{fmt}", [fmt], [fmt, fmt], one, 40)
                form(g, f"{op}{nan}.{fmt}x2", [fmt + "x2"], [fmt + "x2"] * 2, pair(one), 24)


def to_integral(v, mode):
    """A signed fraction to an integer."""
    floor = math.floor(v)
    rest = v - floor
    return {"rmi": floor, "rpi": floor + (rest > 0), "rzi": floor + (1 if v < 0 and rest > 0 else 0),
            "rni": floor + (1 if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor & 1) else 0)}[mode]


ALL_INTS = ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"]


def converts():
    g = "convert_integer"
    for to in ALL_INTS:
        for fr in ALL_INTS:
            x = val(fr)
            form(g, f"cvt.{to}.{fr}", [to], [fr], lambda a: x(a), 10)
            if bounds(fr)[0] < bounds(to)[0] or bounds(fr)[1] > bounds(to)[1]:
                form(g, f"cvt.sat.{to}.{fr}", [to], [fr], lambda a: clamp(x(a), to), 12)
    g = "convert_float_integer"
    for fmt in ("f32", "f64", "f16", "bf16"):
        for to in ALL_INTS:
            for mode in ("rni", "rzi", "rmi", "rpi"):
                if fmt == "bf16" and to[1:] == "8":
                    continue

                def f(a, ftz=False):
                    d = decode(fmt, flush(fmt, a) if ftz else a)
                    low, high = bounds(to)
                    if d[0] == "nan":
                        # "Zero if the source is not .f64 and the destination not .s64 or .u64; else the topmost bit alone."
                        return 1 << (int(to[1:]) - 1) if fmt == "f64" or to[1:] == "64" else 0
                    if d[0] == "inf":
                        return low if d[1] else high
                    return clamp(to_integral((-1) ** d[1] * d[2], mode), to)

                form(g, f"cvt.{mode}.{to}.{fmt}", [to], [fmt], f, 24)
                if fmt == "f32":
                    form(g, f"cvt.{mode}.ftz.{to}.{fmt}", [to], [fmt], lambda a: f(a, True), 12)
        for fr in ALL_INTS:
            for mode in ("rn", "rz", "rm", "rp"):
                if fmt == "bf16" and fr[1:] == "8":
                    continue
                x = val(fr)
                form(g, f"cvt.{mode}.{fmt}.{fr}", [fmt], [fr], lambda a: rounded(fmt, int(x(a) < 0), Fraction(abs(x(a))), mode), 12)
    g = "convert_float"

    def narrow(to, fr, mode, a, ftz=False, sat=False, relu=False, satfinite=False):
        d = decode(fr, flush(fr, a) if ftz else a)
        if d[0] == "nan":
            r = None if to == "f64" else NAN[to]
            if fr == "f64" and not (relu or satfinite):
                # Sign and the upper bits of the payload stay (an H200).
                e, m, _, width = layout(to)
                r = a >> 63 << (width - 1) | ((1 << e) - 1) << m | (a & (1 << 52) - 1) >> (52 - m) | 1 << (m - 1)
            return 0 if sat else r
        if d[0] == "inf":
            r = infinity(to, d[1]) if not satfinite else rounded(to, d[1], Fraction(2) ** 1000, mode, True)
        else:
            r = rounded(to, d[1], d[2], mode, satfinite)
        if ftz and to == "f32":
            r = flush(to, r)
        neg = r >> (layout(to)[3] - 1)
        if relu and neg:
            return 0
        if sat:
            d = decode(to, r)
            return 0 if neg else rounded(to, 0, Fraction(1), "rn") if d[0] == "inf" or d[2] > 1 else r
        return r

    for to, fr in (("f32", "f16"), ("f64", "f16"), ("f64", "f32"), ("f32", "bf16"), ("f64", "bf16")):
        form(g, f"cvt.{to}.{fr}", [to], [fr], lambda a: a << 16 if (to, fr) == ("f32", "bf16") else narrow(to, fr, "rn", a), 32)
    for to, fr, modes in (("f16", "f32", "rn rz rm rp"), ("f16", "f64", "rn rz rm rp"), ("f32", "f64", "rn rz rm rp"), ("bf16", "f32", "rn rz"), ("bf16", "f64", "rn rz rm rp"), ("bf16", "f16", "rn rz"), ("f16", "bf16", "rn rz")):
        for mode in modes.split():
            form(g, f"cvt.{mode}.{to}.{fr}", [to], [fr], lambda a: narrow(to, fr, mode, a), 48)
            if fr == "f32" or to == "f32":
                if to != "bf16":
                    form(g, f"cvt.{mode}.ftz.{to}.{fr}", [to], [fr], lambda a: narrow(to, fr, mode, a, to != "f16"), 24)
                    form(g, f"cvt.{mode}.sat.{to}.{fr}", [to], [fr], lambda a: narrow(to, fr, mode, a, sat=True), 24)
                else:
                    form(g, f"cvt.{mode}.relu.{to}.{fr}", [to], [fr], lambda a: narrow(to, fr, mode, a, relu=True), 24)
    for to in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            for relu in ("", ".relu"):
                # cvt.f16x2.f32 d, a, b: a is the upper half.
                form(g, f"cvt.{mode}{relu}.{to}x2.f32", ["b32"], ["f32", "f32"], lambda a, b: narrow(to, "f32", mode, a, relu=relu) << 16 | narrow(to, "f32", mode, b, relu=relu), 32)
    for fmt in ("f32", "f64", "f16"):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            def whole(a):
                d = decode(fmt, a)
                if d[0] != "num":
                    return NAN.get(fmt) if d[0] == "nan" else a
                v = to_integral((-1) ** d[1] * d[2], mode)
                return rounded(fmt, d[1] if v == 0 else int(v < 0), Fraction(abs(v)), "rn")

            form(g, f"cvt.{mode}.{fmt}.{fmt}", [fmt], [fmt], whole, 40)
    # Half of the last place is added to the magnitude, and 13 bits are cut; infinities and NaN are only cut.
    form(g, "cvt.rna.tf32.f32", ["b32"], ["f32"], lambda a: (a + (0x1000 if decode("f32", a)[0] == "num" else 0)) & 0xFFFFE000, 64)
    g = "convert_fp8"
    for to in ("e4m3", "e5m2"):
        for relu in ("", ".relu"):
            one = lambda a, fr: narrow(to, fr, "rn", a, relu=relu, satfinite=True)
            form(g, f"cvt.rn.satfinite{relu}.{to}x2.f32", ["b16"], ["f32", "f32"], lambda a, b: one(a, "f32") << 8 | one(b, "f32"), 64)
            form(g, f"cvt.rn.satfinite{relu}.{to}x2.f16x2", ["b16"], ["f16x2"], lambda a: one(a >> 16, "f16") << 8 | one(a & 0xFFFF, "f16"), 64)

            def widen(c):
                d = decode(to, c)
                if d[0] == "nan":
                    return 0x7FFF
                r = infinity("f16", d[1]) if d[0] == "inf" else rounded("f16", d[1], d[2], "rn")
                return 0 if relu and r >> 15 else r

            form(g, f"cvt.rn{relu}.f16x2.{to}x2", ["b32"], ["b16"], lambda a: widen(a >> 8) << 16 | widen(a & 255), 64)


def warp(group, name, types, outs, fun):
    """32 rows of a form whose lanes act together: `fun` maps all lanes' operands to all lanes' results."""
    lanes = [[operand(t) for t in types] for _ in range(32)]
    hexed = lambda v, ts: " ".join(f"{x & ((1 << bits(t)) - 1):0{bits(t) // 4}x}" for x, t in zip(v, ts))
    rows = [f"{hexed(i, types)} -> {hexed(o, outs)}" for i, o in zip(lanes, fun(lanes))]
    FILES.setdefault(group, []).append(f"form {name}\n" + "\n".join(rows))


def collectives():
    g = "warp"

    def shuffle(mode):
        def f(lanes):
            out = []
            for lane, (a, b, c) in enumerate(lanes):
                b, clamp_at, mask = b & 31, c & 31, c >> 8 & 31
                last, first = (lane & mask) | (clamp_at & ~mask & 31), lane & mask
                j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": first | (b & ~mask & 31)}[mode]
                p = j >= last if mode == "up" else j <= last
                out.append((lanes[j if p else lane][0], int(p)))
            return out

        return f

    for mode in ("up", "down", "bfly", "idx"):
        for _ in range(3):
            warp(g, f"shfl.sync.{mode}.b32 =b32|=pred, $b32, $b32, $b32, -1", ["b32"] * 3, ["b32", "pred"], shuffle(mode))
    every = lambda v: [(v,)] * 32
    for name, fun in (("all", all), ("any", any)):
        warp(g, f"vote.sync.{name}.pred =pred, $pred, -1", ["pred"], ["pred"], lambda l: every(int(fun(x[0] for x in l))))
    warp(g, "vote.sync.ballot.b32 =b32, !$pred, -1", ["pred"], ["b32"], lambda l: every(sum((1 - x[0]) << n for n, x in enumerate(l))))
    for t in ("b32", "b64"):
        same = lambda l: [(sum((y == x) << n for n, y in enumerate(l)),) for x in l]
        warp(g, f"match.any.sync.{t} =b32, ${t}, -1", [t], ["b32"], same)
        warp(g, f"match.all.sync.{t} =b32|=pred, ${t}, -1", [t], ["b32", "pred"], lambda l: [(0xFFFFFFFF, 1) if len({x[0] for x in l}) == 1 else (0, 0)] * 32)
    for t in ("u32", "s32"):
        x = val(t)
        for name, fun in (("add", sum), ("min", min), ("max", max)):
            warp(g, f"redux.sync.{name}.{t} ={t}, ${t}, -1", [t], [t], lambda l: every(fun(x(v[0]) for v in l)))
    for name, fun in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b)):
        warp(g, f"redux.sync.{name}.b32 =b32, $b32, -1", ["b32"], ["b32"], lambda l: every(functools.reduce(fun, (v[0] for v in l))))

    def transposed(lanes):
        at = lambda row, col: lanes[4 * row + col // 2][0] >> 16 * (col % 2) & 0xFFFF
        return [(at(2 * (n % 4), n // 4) | at(2 * (n % 4) + 1, n // 4) << 16,) for n in range(32)]

    warp(g, "movmatrix.sync.aligned.m8n8.trans.b16 =b32, $b32", ["b32"], ["b32"], transposed)


def matrices():
    """Integer products: PTX's places of elements, and sums of Python's integers."""
    g = "mma_integer"

    def product(m, k, n_bits, a_signed, b_signed, sat, bit_op):
        per = 32 // n_bits
        a_regs, b_regs = m * k // 32 // per, 8 * k // 32 // per
        cut = lambda v, s: signed(v, n_bits) if s else v & ((1 << n_bits) - 1)

        def f(lanes):
            A, B, C = {}, {}, {}
            for lane, v in enumerate(lanes):
                group, thread = lane >> 2, lane & 3
                for r in range(a_regs):
                    for e in range(per):
                        row = group + (8 * (r % 2) if m == 16 else 0)
                        block = r // 2 if m == 16 else r
                        A[row, block * 4 * per + thread * per + e] = cut(v[r] >> n_bits * e, a_signed)
                for r in range(b_regs):
                    for e in range(per):
                        B[r * 4 * per + thread * per + e, group] = cut(v[a_regs + r] >> n_bits * e, b_signed)
                for r in range(m // 4):
                    C[group + 8 * (r // 2), 2 * thread + r % 2] = signed(v[a_regs + b_regs + r], 32)
            mul = {"": lambda x, y: x * y, "xor": lambda x, y: x ^ y, "and": lambda x, y: x & y}[bit_op]
            out = []
            for lane in range(32):
                row, col = lane >> 2, 2 * (lane & 3)
                d = []
                for r in range(m // 4):
                    i, j = row + 8 * (r // 2), col + r % 2
                    s = C[i, j] + sum(mul(A[i, x], B[x, j]) for x in range(k))
                    d.append(clamp(s, "s32") if sat else s)
                out.append(d)
            return out

        return f, a_regs, b_regs

    def one(m, k, ta, tb, sat="", bit_op=""):
        n_bits = int(ta[1:])
        f, a, b = product(m, k, n_bits, ta[0] == "s", tb[0] == "s", sat, bit_op)
        d = m // 4
        tail = f".{bit_op}.popc" if bit_op else ""
        name = f"mma.sync.aligned.m{m}n8k{k}.row.col{sat}.s32.{ta}.{tb}.s32{tail} {{=b32*{d}}}, {{$b32*{a}}}, {{$b32*{b}}}, {{$b32*{d}}}"
        warp(g, name, ["b32"] * (a + b + d), ["b32"] * d, f)

    for m, k in ((8, 16), (16, 16), (16, 32)):
        for ta in ("u8", "s8"):
            for tb in ("u8", "s8"):
                one(m, k, ta, tb)
        one(m, k, "s8", "s8", ".satfinite")
    for m, k in ((8, 32), (16, 32), (16, 64)):
        for ta in ("u4", "s4"):
            for tb in ("u4", "s4"):
                one(m, k, ta, tb)
        one(m, k, "s4", "u4", ".satfinite")
    for m, k in ((8, 128), (16, 128), (16, 256)):
        for op in ("xor", "and"):
            one(m, k, "b1", "b1", "", op)


def main():
    for family in (integers, comparisons, logic, floats, converts, collectives, matrices):
        family()
    for name, blocks in FILES.items():
        with open(os.path.join(HERE, name + ".txt"), "w") as f:
            f.write("# source: exact arithmetic, by generate.py\n\n" + "\n\n".join(blocks) + "\n")


if __name__ == "__main__":
    main()
