"""The host's mirrors of the structs that kernels take: params.cuh, ragged.cu, quantise.cu, pack.cu and transpose.cu in kernels/attention/hopper."""
import ctypes
from ctypes import c_float, c_int32, c_int64, c_uint64


class Params(ctypes.Structure):
    """Field for field and in the same order as the device's struct."""
    _fields_ = ([(n, c_uint64) for n in ("q", "k", "v", "q_scale", "k_scale", "v_scale", "out", "lse", "partial", "arrived")]
                + [(f"{t}_{d}", c_int64) for t in "qkv" for d in "bhs"]
                + [(f"{t}s_{d}", c_int32) for t in "qkv" for d in "bht"]
                + [(n, c_int32) for n in ("B", "Hq", "Hkv", "Sq", "Sk", "group", "out_kind")]
                + [("out_inverse_scale", c_float), ("softmax_scale_log2", c_float)]
                + [(n, c_int32) for n in ("tiles_per_unit", "tiles_per_worker", "total_tiles", "row_tiles", "section")]
                + [("v_mean", c_uint64)])


class Ragged(ctypes.Structure):
    """What ragged.cu is told beside Params: its own struct, field for field."""
    _fields_ = ([(n, c_uint64) for n in ("cu_q", "cu_k", "used", "pages")] + [("pages_b", c_int64)]
                + [(f"{t}_{d}", c_int64) for t in "ol" for d in "bhs"]
                + [(n, c_int32) for n in ("total_q", "total_k", "page_size", "page_count", "splits")])


class FewParams(ctypes.Structure):
    """What few.cuh takes where sequences have lengths of their own."""
    _fields_ = [("p", Params), ("x", Ragged)]


class Quantise(ctypes.Structure):
    """One tensor's part in a launch of quantise.cu."""
    _fields_ = ([(n, c_uint64) for n in ("x", "shift", "codes", "scale", "amax")] + [(f"{t}_{d}", c_int64) for t in "xc" for d in "bhs"]
                + [(n, c_int32) for n in ("H", "heads", "S", "D", "kind", "per")])


class Quantises(ctypes.Structure):
    """Up to three tensors that are quantised together."""
    _fields_ = [("of", Quantise * 3)]


class Pack(ctypes.Structure):
    """One tensor's part in a launch of pack.cu."""
    _fields_ = ([(n, c_uint64) for n in ("x", "codes", "transposed", "scale", "mean")] + [(n, c_int64) for n in ("x_b", "x_h", "c_b", "c_h")]
                + [(n, c_int32) for n in ("x_s", "c_s", "H", "heads", "S", "even")])


class Packs(ctypes.Structure):
    """Up to three tensors that are packed together."""
    _fields_ = [("of", Pack * 3)]


class Values(ctypes.Structure):
    """What transpose.cu is told of V and V^T."""
    _fields_ = [("made", c_uint64)] + [(n, c_int32) for n in ("H", "S", "heads", "section")]


class TokenValues(ctypes.Structure):
    """The same where sequences lie one behind another."""
    _fields_ = [("cu", c_uint64)] + [(n, c_int32) for n in ("H", "S", "B")]


class CacheValues(ctypes.Structure):
    """The same where they use a part of a cache, or pages."""
    _fields_ = [(n, c_uint64) for n in ("used", "pages")] + [("pages_b", c_int64)] + [(n, c_int32) for n in ("H", "S", "B", "page_size", "page_count")]


class TensorMap(ctypes.Structure):
    """CUtensorMap's 128 bytes. The driver wants them on 64 bytes: see `aligned`."""
    _fields_ = [("opaque", c_uint64 * 16)]


def aligned_tensor_maps(n):
    """n tensor maps on 64-byte boundaries, and the buffer that owns them."""
    raw = ctypes.create_string_buffer(128 * n + 64)
    start = (-ctypes.addressof(raw)) % 64
    return raw, [TensorMap.from_buffer(raw, start + 128 * i) for i in range(n)]
