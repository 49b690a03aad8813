"""sdpa: torch.nn.functional.scaled_dot_product_attention's signature and meaning, in FP8 where that is possible.

What these kernels do not do (a mask, dropout, gradients, other head dimensions, dtypes or devices) goes to torch's own, with one warning
for each reason, so that a model runs unchanged.
"""
import math
import warnings

import torch
from torch.compiler import is_compiling

from . import _arguments, _call, _fused, _known, _pack, _packed, _plan, _values

_warned = set()


def sdpa(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention of f16 or bf16 tensors, by way of e4m3 with a scale for each head, or, where queries and
    keys are many, for each 128 tokens, with what each channel's keys and values have in common taken out first (pack_kv).

    The signature and meaning are torch's: is_causal is aligned top-left, enable_gqa lets query heads share key heads. The result has q's
    dtype. For a mask, dropout or a tensor that requires a gradient, and where the kernels do not fit, it calls torch's own, with one warning.
    ValueError: head dimensions of q and k that differ, or numbers of keys of k and v, or a dropout_p that is no probability.
    """
    options = attn_mask, dropout_p, is_causal, scale, enable_gqa
    if _known.launcher is not None and not (is_compiling() or _values.looked_at):
        result = _known.launcher.call(_known.UNMASKED, (q, k, v), options)
        if result is not None:
            return result
    why = _unfit(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if why:
        if why not in _warned and not is_compiling():
            _warned.add(why)
            warnings.warn(f"warpsmith.attention.sdpa calls torch's own for {why}", stacklevel=2)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                                                                enable_gqa=enable_gqa)
    if q.dim() == 3:
        return sdpa(q[None], k[None], v[None], None, 0.0, is_causal, scale, enable_gqa)[0]
    if is_compiling():
        return torch.ops.warpsmith.sdpa_unmasked(q, k, v, bool(is_causal), scale)
    out, told = _run(q, k, v, bool(is_causal), scale, _known.knows(_known.UNMASKED, (q, k, v), options) is False)
    if told:
        launches, scratch_bytes, units = told
        _known.tell(_known.UNMASKED, (q, k, v), options, launches, [(out.dtype, out.shape)], range(3), q.device, scratch_bytes, units)
    return out


def unmasked(q, k, v, is_causal=False, scale=None):
    """Attention of f16 or bf16 (B, H, S, D) that the kernels fit, quantised on the way."""
    return _run(q, k, v, is_causal, scale, False)[0]


def _run(q, k, v, is_causal, scale, tells):
    """The same; and, if it is wanted to tell, its launches by where addresses come from, with the bytes of scratch and counters that they want, or None where there is more to it."""
    given = q, k, v
    q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in given)
    tells = tells and all(x is y for x, y in zip((q, k, v), given))
    Sq, Sk = q.shape[2], k.shape[2]
    if is_causal and Sq < Sk:
        k, v = k[:, :, :Sq], v[:, :, :Sq]   # aligned top-left, no query sees the keys behind
    softmax_scale, _ = _arguments.options(scale, q.shape[3], q.dtype, None, "default")
    places = list(map(_known.tensor, range(3)))
    if not (is_causal and Sq > Sk) and _fused.real(q) and _call.packed_fits(q.shape, k.shape[1], k.shape[2], is_causal, q.device):
        kv = _pack.pack_for_one(k, v)
        if kv is not None:
            plan, out = _packed.run((q, kv.k, kv.v_t, None, kv.k_scale, kv.v_scale, kv.v_mean), is_causal, softmax_scale, q.dtype, None)
            packing = _fused.known_plan(_pack.parts_for_one(k, v)) if tells else None
            if plan is None or packing is None:
                return out, None
            made, end = [], 0
            for kinds in packing.kinds:
                sources, end = _known.laid_out(kinds, end)
                made.append(_fused.Packed(*sources))
            of_k, of_v = made
            return out, _told(packing.described(places[1:], made), plan, end, dict(q=places[0], k=of_k.codes, v=of_v.transposed, k_scale=of_k.scale, v_scale=of_v.scale, v_mean=of_v.mean))
    (q8, qs), (k8, ks), (v8, vs) = _pack.quantise([(q, None), (k, None), (v, None)], "head")
    if _fused.real(q):
        call = lambda x, causal: _call.run([x, k8, v8, qs, ks, vs], causal, softmax_scale, q.dtype, None, False)
    else:
        call = lambda x, causal: _call.sdpa_fp8(x, k8, v8, qs, ks, vs, causal=causal, softmax_scale=softmax_scale, out_dtype=q.dtype)
    if is_causal and Sq > Sk:
        return torch.cat([call(q8[:, :, :Sk], True), call(q8[:, :, Sk:], False)], 2), None   # later queries see all keys
    out = call(q8, is_causal)
    quantising = _pack.known_plan([q, k, v], "head") if tells else None
    if quantising is None or q.shape[0] > _call.MAX_GRID or not all(map(_plan.is_loadable, (q8, k8, v8))):
        return out, None
    made, end = [], 0
    for kinds in quantising.kinds:
        sources, end = _known.laid_out(kinds, end)
        made.append(sources)
    codes, scales = zip(*made)
    return out, _told(quantising.described(places, made), _call.last_plan(), end, dict(zip(_plan.ADDRESSES, (*codes, *scales))), quantising.words)


def _told(before, plan, end, at, units=0):
    """Launches, those of a plan behind others, whose results lie in scratch up to a byte, and what they want."""
    return ([*before, *plan.described(dict(at, out=_known.result(0)), end)], end + 4 * plan.choice.partial_floats, max(units, plan.choice.units))


def _check(q, k, v, dropout_p, is_causal):
    """Refuses what no attention can be of: torch 2.11's own crashes the process for some of it (on CUDA a D of k unlike that of q, a dropout of 2)."""
    _arguments.flag("is_causal", is_causal)
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout_p must be between 0 and 1, not {dropout_p}")
    if any(x.is_nested or x.dim() < 2 for x in (q, k, v)):
        return
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(f"q {tuple(q.shape)} and k {tuple(k.shape)} must have one head dimension, k and v {tuple(v.shape)} one number of keys")


def _unfit(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """Why FP8 attention cannot stand in, or nothing."""
    if not all(isinstance(x, torch.Tensor) for x in (q, k, v)):
        return "arguments that are no tensors"
    _check(q, k, v, dropout_p, is_causal)
    if attn_mask is not None:
        return "a mask"
    if dropout_p:
        return "dropout"
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return "tensors that require a gradient"
    if q.dtype not in (torch.float16, torch.bfloat16) or k.dtype != q.dtype or v.dtype != q.dtype:
        return f"{q.dtype} tensors"
    if not q.is_cuda or k.device != q.device or v.device != q.device:
        return f"tensors on {q.device}"
    if q.dim() not in (3, 4) or k.dim() != q.dim() or k.shape != v.shape or k.shape[:-3] != q.shape[:-3] or q.shape[-1] != k.shape[-1]:
        return "shapes that are broadcast"
    if q.shape[-1] not in _arguments.HEAD_DIMS:
        return f"head dimension {q.shape[-1]}"
    if q.dim() == 4 and k.shape[1] != q.shape[1] and not (enable_gqa and k.shape[1] and q.shape[1] % k.shape[1] == 0):
        return "numbers of heads that do not fit"
    if q.dim() == 3 and k.shape[0] != q.shape[0]:
        return "numbers of heads that do not fit"
    if scale is not None and not (isinstance(scale, (int, float)) and 0 < scale < math.inf):
        return "a scale that is not positive"
    if q.numel() == 0 or k.numel() == 0:
        return "empty tensors"
    if torch.cuda.get_device_capability(q.device) != (9, 0):
        return "a device that is not Hopper"
    return None
