"""torch.ops.warpsmith.*: the functions over flat tensors, with fake kernels, so that compiled code takes them whole.

Each op returns what its function does, the log-sum-exp always beside the output (empty where it was not asked for). Fake kernels look at the
same arguments as the real ones: a wrong one is found while compiling.
"""
import torch

from . import _arguments, _call, _dropin, _fused, _pack, _packed, _ragged

_lib = torch.library.Library("warpsmith", "DEF")
_OPTIONS = "bool causal=False, float? softmax_scale=None, ScalarType out_dtype=bfloat16, float? out_scale=None, bool return_lse=False, str mode='default'"
_SCALES = "Tensor q_scale, Tensor k_scale, Tensor v_scale"
_lib.define(f"sdpa_fp8(Tensor q, Tensor k, Tensor v, {_SCALES}, {_OPTIONS}) -> (Tensor, Tensor)")
_lib.define(f"sdpa_fp8_varlen(Tensor q, Tensor k, Tensor v, {_SCALES}, Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k, {_OPTIONS})"
            " -> (Tensor, Tensor)")
_lib.define(f"decode_fp8(Tensor q, Tensor k_cache, Tensor v_cache, {_SCALES}, Tensor cache_seqlens, Tensor? page_table=None, {_OPTIONS}) -> (Tensor, Tensor)")
_lib.define("quantize_fp8(Tensor x, str scales='head', Tensor? shift=None) -> (Tensor, Tensor)")
_lib.define("pack_kv(Tensor k, Tensor v, str scales='block', bool smooth_k=True, bool center_v=True) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)")
_lib.define(f"sdpa_fp8_packed(Tensor q, Tensor k, Tensor v, {_SCALES}, Tensor k_mean, Tensor v_mean, {_OPTIONS}, Tensor? v_t=None) -> (Tensor, Tensor)")
_lib.define("sdpa_unmasked(Tensor q, Tensor k, Tensor v, bool is_causal=False, float? scale=None) -> Tensor")
_lib.define("sdpa(Tensor q, Tensor k, Tensor v, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor")


def _pair(result, return_lse):
    return result if return_lse else (result, result.new_empty(0, dtype=torch.float32))


def _sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False, mode="default"):
    *tensors, softmax_scale, out_scale = _arguments.dense(q, k, v, q_scale, k_scale, v_scale, softmax_scale, out_dtype, out_scale, mode)
    return _pair(_call.run(tensors, causal, softmax_scale, out_dtype, out_scale, return_lse, fast=mode == "fast"), return_lse)


def _fake_sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False, mode="default"):
    _arguments.dense(q, k, v, q_scale, k_scale, v_scale, softmax_scale, out_dtype, out_scale, mode)
    return q.new_empty(q.shape, dtype=out_dtype), q.new_empty(q.shape[:3] if return_lse else (0,), dtype=torch.float32)


def _varlen(q, k, v, q_scale, k_scale, v_scale, cu_q, cu_k, max_q, max_k, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None,
            return_lse=False, mode="default"):
    *tensors, softmax_scale, out_scale = _ragged.check_varlen(q, k, v, q_scale, k_scale, v_scale, cu_q, cu_k, max_q, max_k, softmax_scale, out_dtype, out_scale, mode)
    return _pair(_ragged.run_varlen(tensors, max_q, max_k, causal, softmax_scale, out_dtype, out_scale, return_lse, mode == "fast"), return_lse)


def _fake_varlen(q, k, v, q_scale, k_scale, v_scale, cu_q, cu_k, max_q, max_k, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None,
                 return_lse=False, mode="default"):
    _ragged.check_varlen(q, k, v, q_scale, k_scale, v_scale, cu_q, cu_k, max_q, max_k, softmax_scale, out_dtype, out_scale, mode)
    return q.new_empty(q.shape, dtype=out_dtype), q.new_empty((q.shape[1], q.shape[0]) if return_lse else (0,), dtype=torch.float32)


def _decode(q, k, v, q_scale, k_scale, v_scale, used, pages=None, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False,
            mode="default"):
    *tensors, softmax_scale, out_scale = _ragged.check_decode(q, k, v, q_scale, k_scale, v_scale, used, pages, softmax_scale, out_dtype, out_scale, mode)
    return _pair(_ragged.run_decode(tensors, causal, softmax_scale, out_dtype, out_scale, return_lse, mode == "fast"), return_lse)


def _fake_decode(q, k, v, q_scale, k_scale, v_scale, used, pages=None, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False,
                 mode="default"):
    _ragged.check_decode(q, k, v, q_scale, k_scale, v_scale, used, pages, softmax_scale, out_dtype, out_scale, mode)
    return q.new_empty(q.shape, dtype=out_dtype), q.new_empty(q.shape[:3] if return_lse else (0,), dtype=torch.float32)


def _quantize(x, scales="head", shift=None):
    return tuple(_pack.quantise([(_pack.check_wide("x", x), shift)], _pack.per(scales))[0])


def _fake_quantize(x, scales="head", shift=None):
    _pack.check_wide("x", x)
    B, H, S, _ = x.shape
    shape = {"tensor": (), "head": (B, H), "block": (B, H, (S + 127) // 128)}[_pack.per(scales)]
    return torch.empty_like(x, dtype=_arguments.E4M3), x.new_empty(shape, dtype=torch.float32)


def _means(*means):
    """Empty where there is none: ops return tensors only."""
    return tuple(None if m.numel() == 0 else m for m in means)


def _pack_kv(k, v, scales="block", smooth_k=True, center_v=True):
    made = _pack.pack_kv(k, v, scales=scales, smooth_k=smooth_k, center_v=center_v)
    none = lambda name: k.new_empty(0, dtype=_arguments.E4M3 if name == "v_t" else torch.float32)
    return tuple(none(name) if x is None else x for name, x in zip(made._fields, made))


def _fake_pack_kv(k, v, scales="block", smooth_k=True, center_v=True):
    (k8, ks), (v8, vs) = _fake_quantize(k, scales), _fake_quantize(v, scales)
    mean = lambda on: k.new_empty((k.shape[0], k.shape[1], k.shape[3]) if on and k.shape[2] else (0,), dtype=torch.float32)
    B, H, S, D = v.shape
    both = scales == "block" and _fused.takes(k) and _fused.takes(v) and _fused.on_hopper(v)   # then one launch makes V^T too
    return k8, v8, ks, vs, mean(smooth_k), mean(center_v), v.new_empty((B, H, D, (S + 127) // 128 * 128) if both else (0,), dtype=_arguments.E4M3)


def _sdpa_fp8_packed(q, k, v, q_scale, k_scale, v_scale, k_mean, v_mean, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False,
                     mode="default", v_t=None):
    kv = _pack.PackedKV(k, v, k_scale, v_scale, *_means(k_mean, v_mean), **({} if v_t is None else {"v_t": v_t}))
    return _pair(_packed.sdpa_fp8_packed(q, kv, q_scale, causal=causal, softmax_scale=softmax_scale, out_dtype=out_dtype, out_scale=out_scale, return_lse=return_lse,
                                       mode=mode), return_lse)


def _fake_packed(q, k, v, q_scale, k_scale, v_scale, k_mean, v_mean, causal=False, softmax_scale=None, out_dtype=torch.bfloat16, out_scale=None, return_lse=False,
                 mode="default", v_t=None):
    return _fake_sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, causal, softmax_scale, out_dtype, out_scale, return_lse, mode)


# What runs on a device, and what says how its results look.
OPS = dict(sdpa_fp8=(_sdpa_fp8, _fake_sdpa_fp8), sdpa_fp8_varlen=(_varlen, _fake_varlen), decode_fp8=(_decode, _fake_decode),
           sdpa_fp8_packed=(_sdpa_fp8_packed, _fake_packed), sdpa_unmasked=(_dropin.unmasked, lambda q, k, v, is_causal=False, scale=None: q.new_empty(q.shape)),
           quantize_fp8=(_quantize, _fake_quantize), pack_kv=(_pack_kv, _fake_pack_kv))
for _name, (_real, _fake) in OPS.items():
    _lib.impl(_name, _real, "CUDA")
    if _name in ("quantize_fp8", "pack_kv"):
        _lib.impl(_name, _real, "CPU")
    torch.library.register_fake(f"warpsmith::{_name}", _fake, lib=_lib)
_lib.impl("sdpa", lambda q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False: _dropin.sdpa(
    q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa), "CompositeImplicitAutograd")
