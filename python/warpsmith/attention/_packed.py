"""sdpa_fp8_packed: attention with what pack_kv made. What was taken out of keys and values comes back here."""
import math

import torch

from . import _arguments, _call
from ._arguments import E4M3
from ._pack import PackedKV


def sdpa_fp8_packed(q, kv, q_scale, *, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False, mode="default"):
    """sdpa_fp8 with keys and values from pack_kv; the same keywords. q (B, Hq, Sq, D) is float8_e4m3fn.

    The result is that of the unsmoothed, uncentred keys and values, the log-sum-exp too.
    """
    if not isinstance(kv, PackedKV):
        raise TypeError(f"kv must be a PackedKV, as pack_kv makes it, not {type(kv).__name__}")
    q, q_scale = _arguments.as_tensor("q", q, E4M3), _arguments.as_tensor("q_scale", q_scale, torch.float32)
    _arguments.options(softmax_scale, 64, out_dtype, out_scale, mode)
    causal, return_lse = _arguments.flag("causal", causal), _arguments.flag("return_lse", return_lse)
    plain = kv.v_mean is None
    narrow = torch.bfloat16 if not plain and out_dtype == E4M3 else out_dtype   # the mean is added before the scale is applied
    result = _call.sdpa_fp8(q, kv.k, kv.v, q_scale, kv.k_scale, kv.v_scale, causal=causal, softmax_scale=softmax_scale, out_dtype=narrow,
                             out_scale=out_scale if plain else None, return_lse=return_lse, mode=mode)
    out, lse = result if return_lse else (result, None)
    D, Sq, Sk = q.shape[3], q.shape[2], kv.k.shape[2]
    group = q.shape[1] // max(1, kv.k.shape[1])
    if not plain and Sk:
        mean = kv.v_mean.repeat_interleave(group, 1)[:, :, None]
        blind = max(0, Sq - Sk) if causal else 0   # queries that see no key stay 0
        if out_dtype == E4M3:
            wide = out.float()
            wide[:, :, blind:] += mean
            out = (wide / (float(out_scale) if out_scale is not None else 1.0)).clamp(-448, 448).to(E4M3)
        else:
            out[:, :, blind:].add_(mean)   # summed in f32, rounded once more
    elif not plain:
        out = out.to(out_dtype)
    if lse is not None and kv.k_mean is not None:
        mean = kv.k_mean.repeat_interleave(group, 1)
        dot = torch.einsum("bhsd,bhd->bhs", q.float(), mean) * _spread(q_scale, Sq)
        lse = lse + dot * (1.0 / math.sqrt(D) if softmax_scale is None else float(softmax_scale))
    return (out, lse) if return_lse else out


def _spread(scale, S):
    """A scale for each token, to multiply (B, H, S)."""
    if scale.dim() == 2:
        return scale[:, :, None]
    return scale.repeat_interleave(128, 2)[:, :, :S] if scale.dim() == 3 else scale
