from contextlib import AbstractContextManager
from typing import Any, List, Literal, NamedTuple, Optional, Tuple, Union, overload

import torch
from torch import Tensor

__all__: List[str]

Scales = Literal["tensor", "head", "block"]
Mode = Literal["default", "fast"]
Result = Union[Tensor, Tuple[Tensor, Tensor]]

class PackedKV(NamedTuple):
    k: Tensor
    v: Tensor
    k_scale: Tensor
    v_scale: Tensor
    k_mean: Optional[Tensor] = ...
    v_mean: Optional[Tensor] = ...
    v_t: Optional[Tensor] = ...

# With return_lse a pair: out, log-sum-exp.
@overload
def sdpa_fp8(
    q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any, *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: Literal[False] = ..., mode: Mode = ...,
) -> Tensor: ...
@overload
def sdpa_fp8(
    q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any, *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: Literal[True], mode: Mode = ...,
) -> Tuple[Tensor, Tensor]: ...
@overload
def sdpa_fp8(
    q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any, *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: bool, mode: Mode = ...,
) -> Result: ...
@overload
def sdpa_fp8_packed(
    q: Any, kv: PackedKV, q_scale: Any = ..., *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: Literal[False] = ..., mode: Mode = ...,
) -> Tensor: ...
@overload
def sdpa_fp8_packed(
    q: Any, kv: PackedKV, q_scale: Any = ..., *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: Literal[True], mode: Mode = ...,
) -> Tuple[Tensor, Tensor]: ...
@overload
def sdpa_fp8_packed(
    q: Any, kv: PackedKV, q_scale: Any = ..., *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: bool, mode: Mode = ...,
) -> Result: ...
@overload
def sdpa_fp8_varlen(
    q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int, *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: Literal[False] = ..., mode: Mode = ...,
) -> Tensor: ...
@overload
def sdpa_fp8_varlen(
    q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int, *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: Literal[True], mode: Mode = ...,
) -> Tuple[Tensor, Tensor]: ...
@overload
def sdpa_fp8_varlen(
    q: Any, k: Any, v: Any, q_scale: Any, k_scale: Any, v_scale: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int, *,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: bool, mode: Mode = ...,
) -> Result: ...
@overload
def decode_fp8(
    q: Any, k_cache: Any, v_cache: Any, q_scale: Any, k_scale: Any, v_scale: Any, cache_seqlens: Any, *, page_table: Any = ...,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: Literal[False] = ..., mode: Mode = ...,
) -> Tensor: ...
@overload
def decode_fp8(
    q: Any, k_cache: Any, v_cache: Any, q_scale: Any, k_scale: Any, v_scale: Any, cache_seqlens: Any, *, page_table: Any = ...,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: Literal[True], mode: Mode = ...,
) -> Tuple[Tensor, Tensor]: ...
@overload
def decode_fp8(
    q: Any, k_cache: Any, v_cache: Any, q_scale: Any, k_scale: Any, v_scale: Any, cache_seqlens: Any, *, page_table: Any = ...,
    causal: bool = ..., softmax_scale: Optional[float] = ..., out_dtype: torch.dtype = ..., out_scale: Optional[float] = ...,
    return_lse: bool, mode: Mode = ...,
) -> Result: ...
def checked() -> AbstractContextManager[None]: ...
def quantize_fp8(x: Any, scales: Scales = ...) -> Tuple[Tensor, Tensor]: ...
def pack_kv(k: Any, v: Any, *, scales: Scales = ..., smooth_k: bool = ..., center_v: bool = ...) -> PackedKV: ...
def sdpa(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Optional[Tensor] = ..., dropout_p: float = ..., is_causal: bool = ..., scale: Optional[float] = ...,
    enable_gqa: bool = ...,
) -> Tensor: ...
