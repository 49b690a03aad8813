"""sdpa_fp8_packed: attention with what pack_kv made. What was taken out of keys and values comes back here."""
import math
import threading

import torch
from torch.compiler import is_compiling

from . import _arguments, _call, _fused, _known, _pack, _plan, _values
from ._arguments import E4M3
from ._pack import PackedKV

_local = threading.local()
_TENSORS = "q", "k", "v", "q_scale", "k_scale", "v_scale", "v_mean"   # of a plan's call
_WIDE = torch.bfloat16, torch.float16


def sdpa_fp8_packed(q, kv, q_scale=None, *, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False, mode="default"):
    """sdpa_fp8 with keys and values from pack_kv; the same keywords. q (B, Hq, Sq, D) is float8_e4m3fn; or bfloat16 or float16, without
    a q_scale: then the kernel makes e4m3 of it, each row with a scale of its own, at the cost of a launch less.

    The result is that of the unsmoothed, uncentred keys and values, the log-sum-exp too. Where queries and keys are many, the kernel reads V^T, adds the
    mean itself, and is faster than for row-major values with scales by block: at D 128 by a fifth, at D 256 by a tenth where a head's scales are one, as pack_kv makes them.
    """
    options = causal, softmax_scale, out_dtype, out_scale, return_lse, mode
    if _known.launcher is not None and type(kv) is PackedKV and not (is_compiling() or _values.looked_at):
        result = _known.launcher.call(_known.PACKED, (q, kv.k, kv.v_t, q_scale, kv.k_scale, kv.v_scale, kv.v_mean), options)
        if result is not None:
            return result
    result = _again(q, kv, q_scale, options)
    if result is not None:
        return result
    if not isinstance(kv, PackedKV):
        raise TypeError(f"kv must be a PackedKV, as pack_kv makes it, not {type(kv).__name__}")
    for name in ("k_mean", "v_mean"):
        _check_mean(name, getattr(kv, name), kv.k)
    q = _arguments.as_tensor("q", q, E4M3)
    _arguments.options(softmax_scale, 64, out_dtype, out_scale, mode)
    causal, return_lse = _arguments.flag("causal", causal), _arguments.flag("return_lse", return_lse)
    wide = None
    if q_scale is None:
        if q.dtype not in _WIDE:
            raise TypeError(f"q must be bfloat16 or float16 where there is no q_scale, not {q.dtype}")
        q, wide = _pack.check_wide("q", q), q.dtype
        if not _takes_wide(q, kv, causal, out_dtype, return_lse):
            if is_compiling():
                _arguments.without_gradient("q", q)
            else:   # before anything is launched
                _arguments.dense(q, kv.k, kv.v, None, kv.k_scale, kv.v_scale, softmax_scale, out_dtype, out_scale, mode, wide)
            (q, q_scale), wide = _pack.quantize_fp8(q, "block"), None
    else:
        q_scale = _arguments.as_tensor("q_scale", q_scale, torch.float32)
    v_t = getattr(kv, "v_t", None)
    if v_t is not None and not is_compiling() and isinstance(kv.k, torch.Tensor) and kv.k.dim() == 4:
        _transposed(v_t, kv.k)
    if v_t is not None and (is_compiling() or _arguments.is_fake((q, kv.k, v_t))):
        none = q.new_empty(0, dtype=torch.float32)
        out, lse = torch.ops.warpsmith.sdpa_fp8_packed(q, kv.k, kv.v, q_scale, kv.k_scale, kv.v_scale, *(none if m is None else m for m in (kv.k_mean, kv.v_mean)), causal,
                                                       softmax_scale, out_dtype, out_scale, return_lse, mode, v_t)
        return (out, lse) if return_lse else out
    if v_t is not None and q.dim() == 4 and isinstance(kv.k, torch.Tensor) and kv.k.dim() == 4 and _call.packed_fits(q.shape, kv.k.shape[1], kv.k.shape[2], causal, q.device):
        *tensors, scale, inverse = _arguments.dense(q, kv.k, kv.v, q_scale, kv.k_scale, kv.v_scale, softmax_scale, out_dtype, out_scale, mode, wide)
        tensors[2] = _transposed(v_t, kv.k)
        tensors.append(kv.v_mean)
        plan, result = run(tensors, causal, scale, out_dtype, inverse, return_lse, mode == "fast")
        if plan is not None and not return_lse:   # torch has a part in the log-sum-exp
            _remember(options, tensors, plan)
        out, lse = result if return_lse else (result, None)
    else:
        out, lse = _added_after(q, kv, q_scale, causal, softmax_scale, out_dtype, out_scale, return_lse, mode)
    if lse is not None and kv.k_mean is not None:
        D, Sq, group = q.shape[3], q.shape[2], q.shape[1] // max(1, kv.k.shape[1])
        mean = kv.k_mean.repeat_interleave(group, 1)
        dot = torch.einsum("bhsd,bhd->bhs", q.float(), mean) * _spread(q_scale, Sq)
        lse = lse + dot * (1.0 / math.sqrt(D) if softmax_scale is None else float(softmax_scale))
    return (out, lse) if return_lse else out


def _takes_wide(q, kv, causal, out_dtype, return_lse):
    """Whether a kernel takes queries of 16 bits as they are: packed values that fit, an output of the same kind and no log-sum-exp."""
    v_t = getattr(kv, "v_t", None)
    if is_compiling() or not _fused.real(q) or return_lse or out_dtype != q.dtype or not isinstance(v_t, torch.Tensor) or not isinstance(kv.k, torch.Tensor) or kv.k.dim() != 4:
        return False
    return q.stride(3) == 1 and not _arguments.is_fake((kv.k, v_t)) and _call.packed_fits(q.shape, kv.k.shape[1], kv.k.shape[2], causal, q.device)


def _again(q, kv, q_scale, options):
    """The result of a call like an earlier one of this thread, or None."""
    if is_compiling() or options[4] or _values.looked_at:   # torch has a part in the log-sum-exp
        return None
    try:
        check, plan = _local.seen[options, q_scale is None]
        tensors = (q, kv.k, kv.v_t, q_scale, kv.k_scale, kv.v_scale) + (() if kv.v_mean is None else (kv.v_mean,))
        there = tensors if q_scale is not None else tuple(x for x in tensors if x is not None)
        if not check(*there) or _call.current_device() != plan.index or torch.is_grad_enabled() and any(x.requires_grad for x in there):
            return None
        return plan(*tensors)
    except (AttributeError, KeyError, TypeError):
        return None


def _remember(options, tensors, plan):
    """One layout for each set of options, with and without a scale of queries."""
    if plan.tell(_known.PACKED, tensors, options, {name: _known.tensor(i) for i, name in enumerate(_TENSORS) if tensors[i] is not None}):
        return
    there = [x for x in tensors if x is not None]
    check = _call.guard(there) if not any(isinstance(x, torch.Tensor) for x in options) else None
    if check is not None:
        key = options, tensors[3] is None
        try:
            _local.seen[key] = check, plan
        except AttributeError:
            _local.seen = {key: (check, plan)}


def run(tensors, causal, softmax_scale, out_dtype, out_scale, return_lse=False, fast=False):
    """Launches for tensors that were checked, of which the last is V's mean or None. -> the plan, if it took them as they are, and what it made"""
    given = *map(_plan.loadable, tensors[:3]), *tensors[3:6], tensors[6] if tensors[6] is None else _aligned(tensors[6])
    with torch.cuda.device(given[0].device):
        plan = _call.plan_for(given[:6], causal, softmax_scale, out_dtype, out_scale, return_lse, packed=True, fast=fast)
        result = plan(*given)
    return plan if all(a is b for a, b in zip(given, tensors)) else None, result


def _transposed(v_t, k):
    """V^T, if it is that of keys like k: (B, Hkv, D, keys in whole tiles of 128), contiguous."""
    B, H, S, D = k.shape
    if not isinstance(v_t, torch.Tensor) or v_t.dtype != E4M3:
        raise TypeError(f"v_t must be float8_e4m3fn, as pack_kv makes it, not {getattr(v_t, 'dtype', type(v_t).__name__)}")
    if tuple(v_t.shape) != (B, H, D, -(-S // 128) * 128) or not v_t.is_contiguous() or v_t.device != k.device:
        raise ValueError(f"v_t must be contiguous {(B, H, D, -(-S // 128) * 128)}, as pack_kv makes it of {tuple(k.shape)}, on {k.device}")
    return _arguments.without_gradient("v_t", v_t)


def _check_mean(name, m, k):
    """Whether m is None, or keys' or values' mean (B, Hkv, D)."""
    if m is None:
        return
    if not isinstance(m, torch.Tensor) or m.dtype != torch.float32:
        raise TypeError(f"{name} must be float32, not {getattr(m, 'dtype', type(m).__name__)}")
    if isinstance(k, torch.Tensor) and k.dim() == 4 and (m.shape != (k.shape[0], k.shape[1], k.shape[3]) or m.device != k.device):
        raise ValueError(f"{name} must be {(k.shape[0], k.shape[1], k.shape[3])} on {k.device}, not {tuple(m.shape)} on {m.device}")
    _arguments.without_gradient(name, m)


def _aligned(m):
    """A mean as the kernel reads it."""
    m = m.contiguous()
    return m if m.data_ptr() % 16 == 0 else m.clone()


def _added_after(q, kv, q_scale, causal, softmax_scale, out_dtype, out_scale, return_lse, mode):
    """By row-major values, whose mean torch adds. -> (out, lse or None)"""
    plain = kv.v_mean is None
    narrow = torch.bfloat16 if not plain and out_dtype == E4M3 else out_dtype   # the mean is added before the scale is applied
    result = _call.sdpa_fp8(q, kv.k, kv.v, q_scale, kv.k_scale, kv.v_scale, causal=causal, softmax_scale=softmax_scale, out_dtype=narrow,
                             out_scale=out_scale if plain else None, return_lse=return_lse, mode=mode)
    out, lse = result if return_lse else (result, None)
    Sq, Sk = q.shape[2], kv.k.shape[2]
    if not plain and Sk:
        mean = kv.v_mean.repeat_interleave(q.shape[1] // max(1, kv.k.shape[1]), 1)[:, :, None]
        blind = max(0, Sq - Sk) if causal else 0   # queries that see no key stay 0
        if out_dtype == E4M3:
            wide = out.float()
            wide[:, :, blind:] += mean
            out = (wide / (float(out_scale) if out_scale is not None else 1.0)).clamp(-448, 448).to(E4M3)
        else:
            out[:, :, blind:].add_(mean)   # summed in f32, rounded once more
    elif not plain:
        out = out.to(out_dtype)
    return out, lse


def _spread(scale, S):
    """A scale for each token, to multiply (B, H, S)."""
    if scale.dim() == 2:
        return scale[:, :, None]
    return scale.repeat_interleave(128, 2)[:, :, :S] if scale.dim() == 3 else scale
