"""sdpa_fp8_varlen and decode_fp8: sequences whose lengths, and whose keys' places, only the device knows.

Nothing is read back, so both can be captured, and a captured graph follows the lengths of each replay. A decode of at most 16 packed queries (D 256:
eight) is decode.cu's, if pages are whole tiles of it (16 to 64 keys; of at most eight packed rows 16 at D 128, 32 at D 64, too), and sequences one behind another are if none has more.
More are few.cuh's, if pages are parts of its tiles or whole ones; all else is ragged.cu's. So on Hopper; other cards run portable.cu.
"""
import ctypes
import math
import threading

import torch
from torch.compiler import is_compiling

from . import _arguments, _call, _chosen, _driver, _heuristic, _kernels, _known, _memory, _plan, _values
from ._params import CacheValues, FewParams, Params, Ragged, TokenValues, aligned_tensor_maps
from ._transpose import Transposition

_MAX_GRID, _PLANS = 65535, 256
_local = threading.local()


def sdpa_fp8_varlen(q, k, v, q_scale, k_scale, v_scale, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *, causal=False, softmax_scale=None,
                    out_dtype=torch.bfloat16, out_scale=None, return_lse=False, mode="default"):
    """sdpa_fp8 of sequences that lie one behind another.

    q (Tq, Hq, D), k and v (Tk, Hkv, D), float8_e4m3fn; sequence i is rows cu_seqlens[i] to cu_seqlens[i + 1] (int32, (B + 1,), on the device),
    of which no sequence has more than max_seqlen. Scales f32: (), (B, H) or (B, H, ceil(max_seqlen / 128)), blocks counted from the start of
    each sequence. causal is aligned bottom-right in each sequence. Returns out (Tq, Hq, D), with return_lse also f32 (Hq, Tq). Queries of no
    sequence, or that see no key, are 0 and -inf. The other keywords are sdpa_fp8's.
    """
    if is_compiling():
        out, lse = torch.ops.warpsmith.sdpa_fp8_varlen(q, k, v, q_scale, k_scale, v_scale, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal,
                                                       softmax_scale, out_dtype, out_scale, return_lse, mode)
        return (out, lse) if return_lse else out
    given, asked = (q, k, v, q_scale, k_scale, v_scale, cu_seqlens_q, cu_seqlens_k), (causal, softmax_scale, out_dtype, out_scale, return_lse, mode, max_seqlen_q, max_seqlen_k)
    if _known.launcher is not None and not _values.looked_at:
        result = _known.launcher.call(_known.VARLEN, given, asked)
        if result is not None:
            return result
    *tensors, softmax_scale, out_scale = check_varlen(q, k, v, q_scale, k_scale, v_scale, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale,
                                                      out_dtype, out_scale, mode)
    most = _arguments.count("max_seqlen_q", max_seqlen_q), _arguments.count("max_seqlen_k", max_seqlen_k)
    causal, return_lse = _arguments.flag("causal", causal), _arguments.flag("return_lse", return_lse)
    if _arguments.is_fake(tensors):
        out, lse = torch.ops.warpsmith.sdpa_fp8_varlen(*tensors, *most, causal, softmax_scale, out_dtype, out_scale, return_lse, mode)
        return (out, lse) if return_lse else out
    result = run_varlen(tensors, *most, causal, softmax_scale, out_dtype, out_scale, return_lse, mode == "fast")
    if _known.knows(_known.VARLEN, given, asked) is False and not (_values.looked_at or _arguments.wants_gradient(*given[:6])) and all(type(x) is torch.Tensor for x in given):
        plan = _local.last
        if plan is not None and plan.writes_all and all(map(_loadable, given[:3])):
            plan.tell(_known.VARLEN, given, asked, result if return_lse else (result,), ("cu_q", "cu_k"))
    return result


def _loadable(x):
    return _plan.is_loadable(x, x.dim() - 1)


def check_varlen(q, k, v, q_scale, k_scale, v_scale, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, out_dtype, out_scale, mode):
    """The eight tensors, softmax_scale and out_scale."""
    q = _arguments.codes("q", q, ("Tq", "Hq", "D"))
    k, v = _arguments.codes("k", k, ("Tk", "Hkv", "D"), q.device), _arguments.codes("v", v, ("Tk", "Hkv", "D"), q.device)
    D = q.shape[2]
    _arguments.head_dim(D)
    if k.shape != v.shape or k.shape[2] != D:
        raise ValueError(f"k {tuple(k.shape)} and v {tuple(v.shape)} must have one shape, and q's head dimension {D}")
    _arguments.heads(q.shape[1], k.shape[1])
    max_seqlen_q, max_seqlen_k = _arguments.count("max_seqlen_q", max_seqlen_q), _arguments.count("max_seqlen_k", max_seqlen_k)
    cu_q = _arguments.integers("cu_seqlens_q", cu_seqlens_q, (None,), q.device)
    if cu_q.shape[0] < 1:
        raise ValueError("cu_seqlens_q must have the shape (B + 1,), not (0,)")
    cu_k = _arguments.integers("cu_seqlens_k", cu_seqlens_k, (cu_q.shape[0],), q.device)
    if _values.looked_at:
        _values.boundaries("cu_seqlens_q", cu_q, q.shape[0], max_seqlen_q)
        _values.boundaries("cu_seqlens_k", cu_k, k.shape[0], max_seqlen_k)
    B = cu_q.shape[0] - 1
    shapes = [_arguments.scale_shapes(B, h, n) for h, n in ((q.shape[1], max_seqlen_q), (k.shape[1], max_seqlen_k), (k.shape[1], max_seqlen_k))]
    scales = [_arguments.scale(n, s, q.device, x) for n, s, x in zip(("q_scale", "k_scale", "v_scale"), (q_scale, k_scale, v_scale), shapes)]
    return (q, k, v, *scales, cu_q, cu_k) + _arguments.options(softmax_scale, D, out_dtype, out_scale, mode)


def run_varlen(tensors, max_q, max_k, causal, softmax_scale, out_dtype, out_scale, return_lse, fast=False):
    """Launches for tensors that were checked."""
    _local.last = None
    q, k, v, *scales, cu_q, cu_k = tensors
    (Tq, Hq, D), B = q.shape, cu_q.shape[0] - 1
    def results(written):
        if written:
            return torch.empty(Tq, Hq, D, dtype=out_dtype, device=q.device), torch.empty(Hq, Tq, dtype=torch.float32, device=q.device) if return_lse else None
        out = torch.zeros(Tq, Hq, D, dtype=torch.uint8 if out_dtype == _arguments.E4M3 else out_dtype, device=q.device).view(out_dtype)
        return out, torch.full((Hq, Tq), -math.inf, dtype=torch.float32, device=q.device) if return_lse else None
    if B and Tq and k.shape[0] and max_q and max_k:
        places = dict(cu_q=cu_q, cu_k=cu_k, total_q=Tq, total_k=k.shape[0])
        out, lse = _launch(q, k, v, scales, (B, Hq, k.shape[1], min(max_q, Tq), min(max_k, k.shape[0]), D), causal, softmax_scale,
                           out_dtype, out_scale, return_lse, lambda plan: results(plan.writes_all), (0, D, Hq * D), (0, Tq, 1), places, fast)
    else:
        out, lse = results(False)
    return (out, lse) if return_lse else out


def decode_fp8(q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, *, page_table=None, causal=False, softmax_scale=None, out_dtype=torch.bfloat16,
               out_scale=None, return_lse=False, mode="default"):
    """Attention of a few new queries over caches of which each sequence uses a part.

    q (B, Hq, Sq, D); k_cache and v_cache (B, Sk, Hkv, D), or with page_table (int32, (B, pages of a sequence)) a pool (pages, page_size, Hkv, D);
    cache_seqlens (int32, (B,)) says how many keys each sequence has, the new ones among them. Scales f32: (), (B, H) or (B, H, ceil(S / 128)),
    for k and v with S = Sk, or pages of a sequence times page_size. causal is aligned bottom-right to each sequence's own length.
    Returns out (B, Hq, Sq, D), with return_lse also f32 (B, Hq, Sq). The other keywords are sdpa_fp8's.
    """
    if is_compiling():
        out, lse = torch.ops.warpsmith.decode_fp8(q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table, causal, softmax_scale, out_dtype,
                                                  out_scale, return_lse, mode)
        return (out, lse) if return_lse else out
    if _known.launcher is not None and not _values.looked_at:
        result = _known.launcher.call(_known.DECODE, (q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table), (causal, softmax_scale, out_dtype, out_scale, return_lse, mode))
        if result is not None:
            return result
    watched = _values.looked_at or _arguments.wants_gradient(q, k_cache, v_cache, q_scale, k_scale, v_scale)
    asked = (causal, softmax_scale, out_dtype, out_scale, return_lse, mode, page_table is None)
    given = (q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens) if page_table is None else (
        q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table)
    try:
        check, call = _local.recent.get(asked, (None, None))
    except (AttributeError, TypeError):
        check = None
    if check is not None and not watched and check(*given) and call.fits(q, k_cache, v_cache):
        return call(*given)
    result = _checked_decode(q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table, causal, softmax_scale, out_dtype, out_scale, return_lse, mode)
    if not watched and not any(isinstance(x, torch.Tensor) for x in asked) and all(type(x) is torch.Tensor for x in given):
        _remember(asked, given, result)
    return result


def _checked_decode(q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table, causal, softmax_scale, out_dtype, out_scale, return_lse, mode):
    *tensors, softmax_scale, out_scale = check_decode(q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table, softmax_scale, out_dtype, out_scale, mode)
    causal, return_lse = _arguments.flag("causal", causal), _arguments.flag("return_lse", return_lse)
    if _arguments.is_fake([x for x in tensors if x is not None]):
        out, lse = torch.ops.warpsmith.decode_fp8(*tensors, causal, softmax_scale, out_dtype, out_scale, return_lse, mode)
        return (out, lse) if return_lse else out
    return run_decode(tensors, causal, softmax_scale, out_dtype, out_scale, return_lse, mode == "fast")


class _Again:
    """A decode call like the last one: only addresses differ."""

    def __init__(self, plan, out, lse):
        self.plan = plan
        self.out = _memory.like_one(out.dtype, out.device, out.shape)
        self.lse = None if lse is None else _memory.like_one(torch.float32, out.device, lse.shape)

    def fits(self, q, k, v):
        return not (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15 and torch._C._cuda_getDevice() == self.plan.index

    def __call__(self, q, k, v, q_scale, k_scale, v_scale, used, pages=None):
        out, lse = torch.empty_like(self.out), None if self.lse is None else torch.empty_like(self.lse)
        self.plan(q, k, v, (q_scale, k_scale, v_scale), out, lse, dict(used=used) if pages is None else dict(used=used, pages=pages))
        return out if lse is None else (out, lse)


def _remember(asked, given, result):
    """Keeps the plan of the call that was just made, if its tensors were taken as they are."""
    plan = getattr(_local, "last", None)
    if plan is None or not all(map(_plan.is_loadable, given[:3])):
        return
    if plan.tell(_known.DECODE, (*given, None)[:8], asked[:-1], result if isinstance(result, tuple) else (result,), ("used", "pages")):
        return
    check = _call.guard(given)
    if check is not None:
        try:
            recent = _local.recent
        except AttributeError:
            recent = _local.recent = {}
        if len(recent) >= _PLANS:
            recent.clear()
        recent[asked] = check, _Again(plan, *(result if isinstance(result, tuple) else (result, None)))


def check_decode(q, k_cache, v_cache, q_scale, k_scale, v_scale, cache_seqlens, page_table, softmax_scale, out_dtype, out_scale, mode):
    """The eight tensors (page_table may be None), softmax_scale and out_scale."""
    dims = ("B", "Sk", "Hkv", "D") if page_table is None else ("pages", "page_size", "Hkv", "D")
    q = _arguments.codes("q", q, ("B", "Hq", "Sq", "D"))
    k, v = _arguments.codes("k_cache", k_cache, dims, q.device), _arguments.codes("v_cache", v_cache, dims, q.device)
    B, Hq, Sq, D = q.shape
    _arguments.head_dim(D)
    if k.shape != v.shape or k.shape[3] != D or (page_table is None and k.shape[0] != B):
        raise ValueError(f"k_cache {tuple(k.shape)} and v_cache {tuple(v.shape)} must have one shape that fits q {tuple(q.shape)}")
    _arguments.heads(Hq, k.shape[2])
    keys = k.shape[1]
    if page_table is not None:
        page_table = _arguments.integers("page_table", page_table, (B, None), q.device)
        keys = k.shape[1] * page_table.shape[1]
    used = _arguments.integers("cache_seqlens", cache_seqlens, (B,), q.device)
    if _values.looked_at:
        _values.lengths(used, keys)
        if page_table is not None and keys:
            _values.pages(page_table, used, k.shape[1], k.shape[0])
    shapes = [_arguments.scale_shapes(B, h, n) for h, n in ((Hq, Sq), (k.shape[2], keys), (k.shape[2], keys))]
    scales = [_arguments.scale(n, s, q.device, x) for n, s, x in zip(("q_scale", "k_scale", "v_scale"), (q_scale, k_scale, v_scale), shapes)]
    return (q, k, v, *scales, used, page_table) + _arguments.options(softmax_scale, D, out_dtype, out_scale, mode)


def run_decode(tensors, causal, softmax_scale, out_dtype, out_scale, return_lse, fast=False):
    """Launches for tensors that were checked."""
    _local.last = None
    q, k, v, *scales, used, pages = tensors
    B, Hq, Sq, D = q.shape
    keys = k.shape[1] * (1 if pages is None else pages.shape[1])
    if not (q.numel() and keys and k.shape[0]):
        return _call.empty(q.shape, q.shape[:3], q.device, out_dtype, return_lse)
    out = torch.empty(B, Hq, Sq, D, dtype=out_dtype, device=q.device)
    lse = torch.empty(B, Hq, Sq, dtype=torch.float32, device=q.device) if return_lse else None
    places = dict(used=used)
    if pages is not None:
        places.update(pages=pages, pages_b=pages.stride(0), page_size=k.shape[1], page_count=k.shape[0])
    _launch(q, k, v, scales, (B, Hq, k.shape[2], Sq, keys, D), causal, softmax_scale, out_dtype, out_scale, return_lse, lambda _: (out, lse), (Hq * Sq * D, Sq * D, D),
            (Hq * Sq, Sq, 1), places, fast)
    return (out, lse) if return_lse else out


def _steps(q, k, v):
    """Strides over (sequence or page, head, token) of tensors in either function's layout."""
    if q.dim() == 3:
        return [(0, x.stride(1), x.stride(0)) for x in (q, k, v)]
    return [q.stride()[:3]] + [(x.stride(0), x.stride(2), x.stride(1)) for x in (k, v)]


def _launch(q, k, v, scales, sizes, causal, softmax_scale, out_dtype, out_scale, return_lse, results, out_steps, lse_steps, places, fast):
    """One launch, by a plan that is kept for each layout, into what `results` makes for it: the output, and the log-sum-exps or None. -> both"""
    q, k, v = map(_plan.loadable, (q, k, v))
    try:
        plans = _local.plans
    except AttributeError:
        plans = _local.plans = {}
    numbers = tuple(x for x in places.items() if not isinstance(x[1], torch.Tensor))
    key = (sizes, q.stride(), k.stride(), v.stride(), tuple((s.shape, s.stride()) for s in scales), q.device, causal, softmax_scale, out_dtype, out_scale, return_lse,
           numbers, tuple(n for n, x in places.items() if isinstance(x, torch.Tensor)), fast)
    plan = plans.get(key)
    with torch.cuda.device(q.device):
        if plan is None:
            plan = _RaggedPlan(q, k, v, scales, sizes, causal, softmax_scale, out_dtype, out_scale, out_steps, lse_steps, places, return_lse, fast)
            if len(plans) >= _PLANS:
                plans.clear()
            plans[key] = plan
        out, lse = results(plan)
        plan(q, k, v, scales, out, lse, places)
    _local.last = plan
    return out, lse


class _RaggedPlan:
    """What stays the same for a layout. Belongs to one thread."""

    def __init__(self, q, k, v, scales, sizes, causal, softmax_scale, out_dtype, out_scale, out_steps, lse_steps, places, lse, fast):
        sms = _plan.sms(q.device)
        B, Hq, Hkv, Sq, Sk, D = sizes
        if B > _MAX_GRID:
            raise ValueError(f"at most {_MAX_GRID} sequences in a call, not {B}: split the batch")
        shape = _heuristic.Shape(B, Hq, Hkv, Sq, Sk, D, causal and Sq > 1, plain=not any(map(_arguments.blocks, scales)), lse=lse, fast=fast)
        if not sms:
            c = _plan.portable(shape, q.device, lengths=True, tokens_q=q.shape[0] if q.dim() == 3 else None)
        else:
            c = _chosen.choose_lengths(shape, sms, places.get("page_size")) if q.dim() == 4 else _chosen.choose_varlen(shape, q.shape[0], k.shape[0], sms)
        self.choice = c = c.with_output(_arguments.OUT_KINDS[out_dtype])
        self.index, self.device = q.device.index, q.device
        self.writes_all = ("WS_LENS", 2) in c.defines   # rows of no sequence too
        _driver.bind_context(self.index)
        self.joined = FewParams() if ("WS_FEW", 1) in c.defines else None   # it takes both as one
        p, x = self.params, self.ragged = (self.joined.p, self.joined.x) if self.joined else (Params(), Ragged())
        steps = _steps(q, k, v)
        group = 1 if self.joined and c.splits > 1 else Hq // Hkv   # of a row tile's heads
        _plan.fill_common(p, *steps, scales, group, softmax_scale, out_dtype, out_scale)
        p.B, p.Hq, p.Hkv, p.Sq, p.Sk = B, Hq, Hq // group, Sq, Sk
        p.tiles_per_unit, p.tiles_per_worker, p.total_tiles = c.tiles_per_unit, c.tiles_per_worker, c.total_tiles
        p.row_tiles, p.section = c.row_tiles, c.section
        for name, value in places.items():
            if not isinstance(value, torch.Tensor):
                setattr(x, name, value)
        x.o_b, x.o_h, x.o_s = out_steps
        x.l_b, x.l_h, x.l_s = lse_steps
        x.splits = c.splits
        self.maps, self.transposition = [], None
        if c.boxes:
            self.raw, self.maps = aligned_tensor_maps(3)
            tokens, rows = (k.shape[0], 1) if k.dim() == 3 else (places["page_size"], places["page_count"]) if "pages" in places else (Sk, B)
            dims = (D, tokens, Hkv, rows)
            keys = min(c.boxes[1], places.get("page_size", c.boxes[1]))
            self.shapes = [None] + [(dims, _plan.map_strides((st[2], st[1], st[0]), dims[1:]), (min(D, 128), keys, 1, 1)) for st in steps[1:]]
            if self.joined and _heuristic.few_boxes(group):   # else queries are loaded without a map
                of_q, rows_q = steps[0], (q.shape[0], 1) if q.dim() == 3 else (Sq, B)
                self.shapes[0] = _plan.few_map_shape((D, Hq, *rows_q), (of_q[1], of_q[2], of_q[0]), group)
            self.encoded = [None] * 3
            if c.transposes:
                of_v, made = self.shapes[2], 4 * c.partial_floats
                if q.dim() == 3:
                    self.shapes[2] = _plan.made_map_shape(D, Hkv, _heuristic.token_tiles(shape, k.shape[0]))
                    values, self.lengths = TokenValues(H=Hkv, S=k.shape[0], B=B), dict(cu="cu_k")
                else:
                    self.shapes[2] = _plan.made_map_shape(D, Hkv, _heuristic.ceil_div(Sk, 128), B)
                    values, self.lengths = CacheValues(H=Hkv, S=Sk, B=B, **{n: places[n] for n in ("pages_b", "page_size", "page_count") if n in places}), dict(used="used", pages="pages")
                self.transposition = Transposition(_heuristic.lengths_transposition(shape, made, dict(c.defines)["WS_LENS"], sms), values, (of_v, self.shapes[2]), self.index, made)
        self.kernel = _kernels.kernel(c, self.index)
        self.launch = _driver.Launch(self.kernel, c.grid, c.block, [self.joined, *self.maps] if self.joined else [p, *self.maps, x])

    def __call__(self, q, k, v, scales, out, lse, places):
        p, x, c = self.params, self.ragged, self.choice
        stream = torch._C._cuda_getCurrentRawStream(self.index)
        partial = arrived = None
        if c.partial_floats:
            partial = torch.empty(c.partial_floats, dtype=torch.float32, device=self.device)
        if c.units:
            arrived = _memory.counters(c.units, self.device, stream)
        addresses = [t.data_ptr() for t in (q, k, v, *scales, out)] + [0 if t is None else t.data_ptr() for t in (lse, partial, arrived)]
        if self.transposition:
            self.transposition(addresses[2], addresses[8], stream, **{field: places[name].data_ptr() for field, name in self.lengths.items() if name in places})
            addresses[2] = addresses[8]
        _plan.pack_addresses(p, 0, *addresses)
        for name, value in places.items():
            if isinstance(value, torch.Tensor):
                setattr(x, name, value.data_ptr())
        for i, at in enumerate(addresses[:3] if self.maps else ()):
            if self.encoded[i] != at and self.shapes[i]:
                _driver.encode_tensor_map(ctypes.byref(self.maps[i]), at, *self.shapes[i])
                self.encoded[i] = at
        self.launch(stream)

    def tell(self, kind, tensors, options, results, names):
        """Has `_native` make this plan's calls, of whose tensors the seventh on are these of Ragged's. -> whether it will"""
        c, known = self.choice, _known.knows(kind, tensors, options)
        if known is not False:
            return bool(known)
        at = dict(zip(_plan.ADDRESSES, map(_known.tensor, range(6))), out=_known.result(0), lse=_known.result(1) if len(results) > 1 else None)
        own = {name: _known.tensor(i) if i < len(tensors) and tensors[i] is not None else None for i, name in enumerate(names, 6)}
        launches = []
        if self.transposition:
            v_t = _known.scratch(0)
            launches.append(self.transposition.described(at["v"], v_t, **{field: own[name] for field, name in self.lengths.items()}))
            at["v"] = v_t
        if c.partial_floats:
            at["partial"] = _known.scratch(0)
        if c.units:
            at["arrived"] = _known.counters(0)
        words = {getattr(Params, name).offset: at.get(name) for name in _plan.ADDRESSES}
        own_words = {getattr(Ragged, name).offset: own.get(name) for name in ("cu_q", "cu_k", "used", "pages")}
        maps = list(map(_known.tensor_map, self.shapes, (at["q"], at["k"], at["v"]))) if self.maps else []
        if self.joined:
            arguments = [_known.struct(self.joined, {**words, **{FewParams.x.offset + byte: x for byte, x in own_words.items()}}), *maps]
        else:
            arguments = [_known.struct(self.params, words), *maps, _known.struct(self.ragged, own_words)]
        launches.append(_known.launch(self.kernel, c.grid, c.block, arguments))
        return _known.tell(kind, tensors, options, launches, [(x.dtype, x.shape) for x in results], (0, 1, 2), self.device, 4 * c.partial_floats, c.units)
