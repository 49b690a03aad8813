"""FP8 (e4m3) attention for PyTorch, made for Hopper; other cards from Ampere on run one portable kernel.

    from warpsmith.attention import sdpa_fp8, quantize_fp8
    (q8, qs), (k8, ks), (v8, vs) = (quantize_fp8(x) for x in (q, k, v))      # (B, H, S, D), D 64, 128 or 256
    out = sdpa_fp8(q8, k8, v8, qs, ks, vs, causal=True)

`sdpa` has the signature of torch's scaled_dot_product_attention and quantises inside; `pack_kv` and `sdpa_fp8_packed` keep quantised keys and
values; `sdpa_fp8_varlen` takes sequences one behind another, `decode_fp8` caches, paged or not. All run on the current stream, can be captured
in CUDA graphs, and are `torch.ops.warpsmith.*` inside of torch.compile. Within `checked()` values on the device are looked at too.
"""
try:
    import torch as _torch  # noqa: F401
except ImportError as e:
    raise ImportError("warpsmith.attention works on PyTorch's tensors, and there is no PyTorch here: pip install 'warpsmith[torch]', or torch for your CUDA") from e

from ._call import sdpa_fp8
from ._dropin import sdpa
from ._pack import PackedKV, pack_kv, quantize_fp8
from ._packed import sdpa_fp8_packed
from ._ragged import decode_fp8, sdpa_fp8_varlen
from ._values import checked
from . import _ops   # registers torch.ops.warpsmith

__all__ = ["sdpa_fp8", "quantize_fp8", "pack_kv", "PackedKV", "sdpa_fp8_packed", "sdpa_fp8_varlen", "decode_fp8", "sdpa", "checked"]
