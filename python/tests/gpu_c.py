"""The C library gives the same bits as the Python package: random calls of both on the same tensors.

    cargo xtask attention-kernels && cargo build --release -p warpsmith-attention
    PYTHONPATH=python python3 python/tests/gpu_c.py target/release/libwarpsmith_attention.so [--cases N] [--seconds N] [--seed N]

Dense calls, caches of which each sequence uses a part, pages, and sequences one behind another; strides as Python's layouts have them; scales of tensors, heads and blocks; all outputs, with
and without log-sum-exps. Quantising of one to three tensors, and packing of keys and values with attention over them. Counters are zero again after each launch.
"""
import argparse
import ctypes
import random
import sys
import time
from ctypes import c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p

import torch
import warpsmith.attention as w

E4, DEV = torch.float8_e4m3fn, "cuda"
OUT = {torch.bfloat16: 0, torch.float16: 1, E4: 2}


class Problem(ctypes.Structure):
    _fields_ = ([(n, c_uint32) for n in ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "causal", "out_format")] + [("out_scale", c_float), ("softmax_scale", c_float)]
                + [("strides", c_int64 * 3 * 3), ("scale_strides", c_int32 * 3 * 3)] + [(n, c_uint32) for n in ("packed_values", "wide_queries", "fast")] + [("table_stride", c_int64)]
                + [(n, c_uint32) for n in ("lengths", "page_size", "pages", "tokens_q", "tokens_k")])


class Pointers(ctypes.Structure):
    _fields_ = [(n, c_uint64) for n in ("q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "lse", "scratch", "counters", "v_mean", "used", "pages", "cu_seqlens_q", "cu_seqlens_k")]


class Quantisation(ctypes.Structure):
    _fields_ = [(n, c_uint32) for n in ("batch", "heads", "tokens", "head_dim", "from_", "scales")] + [("strides", c_int64 * 3), ("code_strides", c_int64 * 3)] + [
        (n, c_uint32) for n in ("codes", "centred", "transposed", "even")]


class Quantised(ctypes.Structure):
    _fields_ = [(n, c_uint64) for n in ("x", "codes", "scale", "mean", "transposed")]


FROM, SCALES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}, {"tensor": 0, "head": 1, "block": 2}


def quantised(lib, parts, at):
    """Makes what the parts say into the tensors of `at`, a dict for each."""
    plan, counters = c_void_p(), c_uint32()
    check = lambda code: code and sys.exit(f"{code}: {lib.ws_attention_message().decode()}")
    check(lib.ws_attention_quantise_plan((Quantisation * len(parts))(*parts), len(parts), ctypes.byref(plan)))
    check(lib.ws_attention_quantise_counters(plan, ctypes.byref(counters)))
    count = torch.zeros(counters.value + 1, dtype=torch.int32, device=DEV)
    places = (Quantised * len(parts))(*(Quantised(**{n: t.data_ptr() for n, t in of.items()}) for of in at))
    for _ in range(2):
        check(lib.ws_attention_quantise_launch(plan, places, count.data_ptr(), c_void_p(torch.cuda.current_stream().cuda_stream)))
    torch.cuda.synchronize()
    assert not count.any(), "counters are zero between launches"
    lib.ws_attention_quantise_free(plan)


def as_bytes(x):
    return x.contiguous().reshape(-1).view(torch.uint8)


def differing(pairs):
    return sum((as_bytes(a) != as_bytes(b)).sum().item() for a, b in pairs)


def quantise_case(lib, r):
    """The same of quantize_fp8's kernels."""
    scales, dtype, D = r.choice(list(SCALES)), r.choice(list(FROM)), r.choice((64, 128, 256, 8, 40, 96))
    parts, at, tensors = [], [], []
    for _ in range(r.randint(1, 3)):
        B, H, S = r.randint(1, 4), r.randint(1, 9), r.randint(1, 1 << r.randint(0, 11))
        x = torch.randn(B, S, H, D, device=DEV).to(dtype).transpose(1, 2) if r.random() < 0.5 else torch.randn(B, H, S, D, device=DEV).to(dtype)
        x = x * r.choice((1, 1e-3, 100))
        codes, n = torch.empty_like(x, dtype=E4), -(-S // 128)
        p = Quantisation()
        lib.ws_attention_quantise_dense(B, H, S, D, FROM[dtype], SCALES[scales], ctypes.byref(p))
        p.strides[:], p.code_strides[:] = x.stride()[:3], codes.stride()[:3]
        parts.append(p)
        tensors.append(x)
        at.append(dict(x=x, codes=codes, scale=torch.full({"tensor": (), "head": (B, H), "block": (B, H, n)}[scales], float("nan"), device=DEV)))
    quantised(lib, parts, at)
    differ = differing(pair for x, of in zip(tensors, at) for pair in zip(w.quantize_fp8(x, scales), (of["codes"], of["scale"])))
    return f"{differ} bytes differ" if differ else None, ("quantise", scales, dtype, [tuple(x.shape) for x in tensors])


def pack_case(lib, r):
    """The same of pack_kv's, and of attention over what it makes."""
    D, Hkv, group, dtype = r.choice((64, 128, 256)), r.choice((1, 2, 8)), r.choice((1, 2, 4)), r.choice(list(FROM))
    B, Sq, Sk = r.randint(1, 3), r.randint(1, 3000), r.randint(1, 3000)
    k, v = (torch.randn(B, Hkv, Sk, D, device=DEV) + r.choice((0, 1)) * torch.randn(B, Hkv, 1, D, device=DEV) for _ in "kv")
    k, v = (k * r.choice((1, 5))).to(dtype), v.to(dtype)
    want, n = w.pack_kv(k, v), -(-Sk // 128)
    parts = [Quantisation(), Quantisation()]
    lib.ws_attention_pack_keys(B, Hkv, Sk, D, FROM[dtype], ctypes.byref(parts[0]))
    lib.ws_attention_pack_values(B, Hkv, Sk, D, FROM[dtype], ctypes.byref(parts[1]))
    empty = lambda *shape, kind=torch.float32: torch.empty(*shape, device=DEV, dtype=kind)
    keys = dict(x=k, codes=empty(B, Hkv, Sk, D, kind=E4), scale=empty(B, Hkv, n), mean=empty(B, Hkv, D))
    values = dict(x=v, scale=empty(B, Hkv, n), mean=empty(B, Hkv, D), transposed=empty(B, Hkv, D, 128 * n, kind=E4))
    quantised(lib, parts, [keys, values])
    pairs = [(want.k, keys["codes"]), (want.k_scale, keys["scale"]), (want.k_mean, keys["mean"]), (want.v_scale, values["scale"]), (want.v_mean, values["mean"]), (want.v_t, values["transposed"])]
    causal, of_q = r.random() < 0.5, r.choice((torch.bfloat16, torch.float16, E4))
    q, p = torch.randn(B, Hkv * group, Sq, D, device=DEV).to(of_q), Problem()
    q_scale = torch.rand(B, Hkv * group, device=DEV) + 0.5 if of_q == E4 else None
    out_dtype = torch.bfloat16 if of_q == E4 else of_q
    lib.ws_attention_packed(B, Hkv * group, Hkv, Sq, Sk, D, ctypes.byref(p))
    p.causal, p.wide_queries, p.out_format = int(causal), int(of_q != E4), OUT[out_dtype]
    out, _ = called(lib, p, (q, keys["codes"], values["transposed"], q_scale, keys["scale"], values["scale"]), q.shape, None, out_dtype, v_mean=values["mean"])
    there = w.sdpa_fp8_packed(q, want, q_scale, causal=causal, out_dtype=out_dtype)
    # Elsewhere Python takes other kernels, and queries of 16 bits get scales of blocks there: near, in peaked rows as near as codes allow.
    from warpsmith.attention import _call, _packed
    if _call.packed_fits(q.shape, Hkv, Sk, causal, q.device) and (of_q == E4 or _packed._takes_wide(q, want, causal, out_dtype, False)):
        pairs.append((there, out))
    elif (far := ((out.float() - there.float()).norm() / there.float().norm()).item()) > 0.2:
        return f"outputs are far off: relF {far:.3f}", ("pack", B, Hkv, group, Sq, Sk, D, dtype, of_q, causal)
    differ = differing(pairs)
    return f"{differ} bytes differ" if differ else None, ("pack", B, Hkv, group, Sq, Sk, D, dtype, of_q, causal)


def called(lib, problem, tensors, out_shape, lse_shape, dtype, **own):
    """The C library's out and lse."""
    plan, scratch_bytes, counters = c_void_p(), c_uint64(), c_uint32()
    check = lambda code: code and sys.exit(f"{code}: {lib.ws_attention_message().decode()}: {[(n, getattr(problem, n)) for n, _ in Problem._fields_]}")
    check(lib.ws_attention_plan(ctypes.byref(problem), ctypes.byref(plan)))
    check(lib.ws_attention_workspace(plan, ctypes.byref(scratch_bytes), ctypes.byref(counters)))
    out = torch.full(out_shape, 0xFF, dtype=torch.uint8, device=DEV) if dtype == E4 else torch.full(out_shape, float("nan"), dtype=dtype, device=DEV)
    lse = None if lse_shape is None else torch.full(lse_shape, float("nan"), device=DEV)
    scratch, count = torch.empty(scratch_bytes.value + 16, dtype=torch.uint8, device=DEV), torch.zeros(counters.value + 1, dtype=torch.int32, device=DEV)
    at = Pointers(*(0 if t is None else t.data_ptr() for t in tensors), out.data_ptr(), 0 if lse is None else lse.data_ptr(), scratch.data_ptr(), count.data_ptr(), 0)
    for name, tensor in own.items():
        setattr(at, name, tensor.data_ptr())
    stream = c_void_p(torch.cuda.current_stream().cuda_stream)
    for _ in range(2):
        check(lib.ws_attention_launch(plan, ctypes.byref(at), stream))
    torch.cuda.synchronize()
    assert not count.any(), "counters are zero between launches"
    lib.ws_attention_free(plan)
    return out, lse


def case(lib, r):
    """None, or what differs; and the case."""
    kind = r.choice(("dense", "used", "paged", "varlen", "quantise", "pack"))
    if kind in ("quantise", "pack"):
        return (quantise_case if kind == "quantise" else pack_case)(lib, r)
    D, Hkv, group = r.choice((64, 128, 256)), r.choice((1, 2, 4, 8)), r.choice((1, 1, 2, 3, 4, 5, 8, 16))
    Hq, size = Hkv * group, lambda most: r.randint(1, 1 << r.randint(0, most))
    B, Sq, Sk = min(size(4), 12), r.choice((1, r.randint(1, 16), min(size(10), 700))), r.randint(1, 1 << r.randint(4, 12))
    causal, with_lse, dtype, fast = r.random() < 0.5, r.random() < 0.4, r.choice((torch.bfloat16, torch.float16, E4)), r.random() < 0.2
    codes = lambda *shape: (torch.randn(*shape, device=DEV) * 2).to(E4)
    p, own = Problem(), {}
    if kind == "varlen":
        nq, nk = ([r.randint(0, n) for _ in range(B)] for n in (Sq, Sk))
        if r.random() < 0.5:
            nq = [min(n, 1) for n in nq[1:]] + [Sq]
        tq, tk = sum(nq) + r.choice((0, 5)), sum(nk) + r.choice((0, 9))
        tq, tk, Sq, Sk = max(tq, 1), max(tk, 1), max(max(nq), 1), max(max(nk), 1)
        q, k, v = codes(tq, Hq, D), codes(tk, Hkv, D), codes(tk, Hkv, D)
        begins = lambda ns: torch.tensor([sum(ns[:i]) for i in range(len(ns) + 1)], dtype=torch.int32, device=DEV)
        own = dict(cu_seqlens_q=begins(nq), cu_seqlens_k=begins(nk))
        steps = [(0, x.stride(1), x.stride(0)) for x in (q, k, v)]
        p.tokens_q, p.tokens_k, p.lengths = tq, tk, 3
    elif kind == "dense":
        q, k, v = (codes(B, n, h, D).transpose(1, 2) if r.random() < 0.5 else codes(B, h, n, D) for h, n in ((Hq, Sq), (Hkv, Sk), (Hkv, Sk)))
        steps = [x.stride()[:3] for x in (q, k, v)]
    else:
        q = codes(B, Sq, Hq, D).transpose(1, 2) if r.random() < 0.5 else codes(B, Hq, Sq, D)
        if kind == "paged":
            page = r.choice((16, 24, 32, 64, 128, 256))
            of_each = -(-Sk // page)
            Sk, pages = page * of_each, B * of_each + 2
            k, v = codes(pages, page, Hkv, D), codes(pages, page, Hkv, D)
            own["pages"] = torch.randperm(pages, device=DEV)[:B * of_each].to(torch.int32).reshape(B, of_each)
            p.page_size, p.pages, p.table_stride, p.lengths = page, pages, of_each, 2
        else:
            k, v = codes(B, Sk, Hkv, D), codes(B, Sk, Hkv, D)
            p.lengths = 1
        own["used"] = torch.tensor([r.randint(0, Sk) for _ in range(B)], dtype=torch.int32, device=DEV)
        steps = [q.stride()[:3]] + [(x.stride(0), x.stride(2), x.stride(1)) for x in (k, v)]
    def scale(H, S):
        shape = r.choice(((), (B, H), (B, H), (B, H, -(-S // 128))))
        return torch.rand(shape, device=DEV) + 0.5
    scales = [scale(Hq, Sq), scale(Hkv, Sk), scale(Hkv, Sk)]
    for i, (st, s) in enumerate(zip(steps, scales)):
        p.strides[i][:] = st
        p.scale_strides[i][:] = [0, 0, 0] if s.dim() == 0 else [*s.stride(), 0][:3]
    p.batch, p.heads_q, p.heads_kv, p.seqlen_q, p.seqlen_k, p.head_dim, p.causal, p.out_format = B, Hq, Hkv, Sq, Sk, D, int(causal), OUT[dtype]
    p.out_scale, p.softmax_scale, p.fast = (0.02 if dtype == E4 else 0), r.choice((0, 0.07)), int(fast)
    asked = dict(causal=causal, softmax_scale=p.softmax_scale or None, out_dtype=dtype, out_scale=0.02 if dtype == E4 else None, return_lse=with_lse, mode="fast" if fast else "default")
    if asked["softmax_scale"]:
        asked["softmax_scale"] = float(c_float(0.07).value)
    if asked["out_scale"]:
        asked["out_scale"] = float(c_float(0.02).value)
    if kind == "dense":
        want = w.sdpa_fp8(q, k, v, *scales, **asked)
    elif kind == "varlen":
        want = w.sdpa_fp8_varlen(q, k, v, *scales, own["cu_seqlens_q"], own["cu_seqlens_k"], Sq, Sk, **asked)
    else:
        want = w.decode_fp8(q, k, v, *scales, own["used"], page_table=own.get("pages"), **asked)
    want, of_lse = want if with_lse else (want, None)
    out, lse = called(lib, p, (q, k, v, *scales), want.shape, None if of_lse is None else of_lse.shape, dtype, **own)
    differ = differing([(out, want)] + ([] if lse is None else [(lse, of_lse)]))
    return f"{differ} bytes differ" if differ else None, (kind, B, Hq, Hkv, Sq, Sk, D, asked, [s.shape for s in scales], p.page_size)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("library")
    ap.add_argument("--cases", type=int, default=500)
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    lib = ctypes.CDLL(a.library)
    lib.ws_attention_message.restype = ctypes.c_char_p
    lib.ws_attention_free.argtypes = [c_void_p]
    lib.ws_attention_launch.argtypes = [c_void_p, c_void_p, c_void_p]
    lib.ws_attention_workspace.argtypes = [c_void_p] * 3
    lib.ws_attention_quantise_launch.argtypes = [c_void_p, c_void_p, c_uint64, c_void_p]
    lib.ws_attention_quantise_plan.argtypes = [c_void_p, c_uint32, c_void_p]
    lib.ws_attention_quantise_counters.argtypes = [c_void_p] * 2
    lib.ws_attention_quantise_free.argtypes = [c_void_p]
    begin, seen, wrong = time.monotonic(), {}, 0
    for i in range(a.cases):
        if time.monotonic() - begin > a.seconds:
            break
        r = random.Random(f"{a.seed}/{i}")
        torch.manual_seed(r.randrange(1 << 40))
        why, of = case(lib, r)
        seen[of[0]] = seen.get(of[0], 0) + 1
        if why:
            wrong += 1
            print(f"seed {a.seed} case {i}: {why}: {of}")
            if wrong == 10:
                break
    print(f"{sum(seen.values()) - wrong} of {sum(seen.values())} calls the same bits as Python's, {seen}, {time.monotonic() - begin:.1f} s")
    return wrong or not seen


if __name__ == "__main__":
    sys.exit(bool(main()))
