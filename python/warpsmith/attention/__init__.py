"""FP8 (e4m3) attention for PyTorch on Hopper.

    from warpsmith.attention import sdpa_fp8
    out = sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, causal=True)

q (B, Hq, Sq, D), k and v (B, Hkv, Sk, D) are float8_e4m3fn with a contiguous last dimension, D 64, 128 or 256; scales are f32, x = code * scale.
"""
from ._call import quantize_fp8, sdpa_fp8

__all__ = ["sdpa_fp8", "quantize_fp8"]
