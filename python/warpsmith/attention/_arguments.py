"""What callers may pass: every argument is looked at here, before anything is launched. Knows tensors and errors, no kernels.

TypeError is for what is of the wrong kind or dtype, ValueError for what does not fit. Arrays of other libraries come in through DLPack or
`__cuda_array_interface__`; bytes of theirs are taken as e4m3 codes, as few of them know that format.
"""
import math

import torch

from . import _values

E4M3 = torch.float8_e4m3fn
OUT_KINDS = {torch.bfloat16: 0, torch.float16: 1, E4M3: 2}
HEAD_DIMS = (64, 128, 256)
_grad_enabled = torch.is_grad_enabled


def as_tensor(name, x, dtype):
    """x as a torch tensor; an array of another library is shared, not copied."""
    if isinstance(x, torch.Tensor):
        return x
    try:
        if hasattr(x, "__dlpack__"):
            x = torch.from_dlpack(x)
        elif hasattr(x, "__cuda_array_interface__"):
            x = torch.as_tensor(x, device="cuda")
        else:
            raise TypeError(f"{name} must be a tensor, not {type(x).__name__}")
    except (BufferError, RuntimeError, ValueError, AttributeError) as e:
        raise TypeError(f"{name}, a {type(x).__name__}, cannot be taken as a tensor: {e}") from e
    return x.view(E4M3) if dtype is E4M3 and x.dtype == torch.uint8 else x


def is_fake(tensors):
    """Whether any is a tensor without data, as compilers trace with: the ops have kernels for those."""
    return any(type(x) is not torch.Tensor and isinstance(x, torch._subclasses.FakeTensor) for x in tensors)


def codes(name, x, dims, device=None, dtype=E4M3):
    """x as e4m3 codes (or of another dtype) of so many dimensions with a contiguous last one, on `device` if given."""
    x = as_tensor(name, x, dtype)
    if x.dtype != dtype:
        raise TypeError(f"{name} must be {str(dtype).removeprefix('torch.')}, not {x.dtype}")
    if x.dim() != len(dims):
        raise ValueError(f"{name} must be ({', '.join(dims)}), not {tuple(x.shape)}")
    if not x.is_cuda or (device is not None and x.device != device):
        raise ValueError(f"{name} must be on {'q' + chr(39) + 's' if device is not None else 'a'} CUDA device, not on {x.device}")
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        raise ValueError(f"the last dimension of {name} must be contiguous, not of stride {x.stride(-1)}")
    return without_gradient(name, x)


def without_gradient(name, x):
    """x, if nobody expects a gradient of it: there is no backward, and silence would train nothing."""
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires a gradient, and FP8 attention has none: call it under torch.no_grad(), or with {name}.detach()")
    return x


def wants_gradient(q, k, v, q_scale, k_scale, v_scale):
    """Whether any does. Every eager call asks, so it is plain. What is no tensor of torch's does not."""
    if not _grad_enabled():
        return False
    try:
        return q.requires_grad or k.requires_grad or v.requires_grad or q_scale.requires_grad or k_scale.requires_grad or v_scale.requires_grad
    except AttributeError:
        return False


def head_dim(D):
    """D, if there are kernels for it."""
    if D not in HEAD_DIMS:
        raise ValueError(f"the head dimension must be 64, 128 or 256, not {D}")


def heads(Hq, Hkv):
    """Query heads share key heads in whole groups. No heads at all are an empty tensor, and no error."""
    if Hq % Hkv if Hkv else Hq:
        raise ValueError(f"q's {Hq} heads must be a multiple of k's {Hkv}")
    if Hkv > 65535:   # a grid's second size
        raise ValueError(f"at most 65535 key heads, not {Hkv}")


def scale(name, s, device, shapes):
    """s as f32 of one of the shapes (the empty one, (B, H), (B, H, blocks)), on the device."""
    s = as_tensor(name, s, torch.float32)
    if s.dtype != torch.float32:
        raise TypeError(f"{name} must be float32, not {s.dtype}")
    if s.device != device:
        raise ValueError(f"{name} must be on q's device, not on {s.device}")
    if not any(tuple(s.shape) == x for x in shapes):
        raise ValueError(f"{name} must have the shape {', '.join(map(str, shapes[:-1]))} or {shapes[-1]}, not {tuple(s.shape)}")
    if _values.looked_at:
        _values.scales(name, s)
    return without_gradient(name, s)


def scale_shapes(B, H, S):
    """The layouts of a scale: one, one for each head, one for each 128 tokens of a head."""
    return (), (B, H), (B, H, -(-S // 128))


def scale_strides(s):
    """Steps over batch, head and block; 0 where it is shared, or there is none."""
    if s is None:
        return 0, 0, 0
    st = tuple(x if n > 1 else 0 for x, n in zip(s.stride(), s.shape))
    return st + (0,) * (3 - len(st))


def blocks(s):
    """Whether a scale differs between blocks of tokens."""
    return s is not None and s.dim() == 3 and s.shape[2] > 1


def integers(name, x, shape, device):
    """x as contiguous int32 of this shape on the device."""
    x = as_tensor(name, x, torch.int32)
    if x.dtype != torch.int32:
        raise TypeError(f"{name} must be int32, not {x.dtype}")
    if x.device != device:
        raise ValueError(f"{name} must be on q's device, not on {x.device}")
    if x.dim() != len(shape) or any(n is not None and n != m for n, m in zip(shape, x.shape)):
        raise ValueError(f"{name} must have the shape ({', '.join('any' if n is None else str(n) for n in shape)}), not {tuple(x.shape)}")
    if x.dim() and x.shape[-1] > 1 and x.stride(-1) != 1:
        raise ValueError(f"{name} must be contiguous")
    return x


def count(name, n):
    """n as a whole number that is not negative."""
    if not isinstance(n, (int, torch.SymInt)) or isinstance(n, bool):
        if isinstance(n, (bool, torch.Tensor)) or not hasattr(n, "__index__"):   # a tensor's number would be waited for
            raise TypeError(f"{name} must be an int, not {type(n).__name__}")
        n = n.__index__()
    if n < 0:
        raise ValueError(f"{name} must not be negative: {n}")
    return n


def options(softmax_scale, D, out_dtype, out_scale, mode):
    """(softmax_scale, out_scale) as floats, defaults filled in."""
    if out_dtype not in OUT_KINDS:
        raise TypeError(f"out_dtype must be bfloat16, float16 or float8_e4m3fn, not {out_dtype}")
    softmax_scale = 1.0 / math.sqrt(D) if softmax_scale is None else _positive("softmax_scale", softmax_scale)
    if out_scale is not None:
        if out_dtype is not E4M3:
            raise ValueError("out_scale is for out_dtype=torch.float8_e4m3fn only")
        out_scale = _positive("out_scale", out_scale)
    if mode not in ("default", "fast"):
        raise ValueError(f"mode must be default or fast, not {mode!r}")
    return softmax_scale, out_scale


def flag(name, x):
    """x as a bool."""
    if isinstance(x, (bool, int)) or type(x).__name__ in ("bool", "bool_"):   # NumPy's, under its old and new name
        return bool(x)
    raise TypeError(f"{name} must be a bool, not {type(x).__name__}")


def _positive(name, x):
    if isinstance(x, (str, bytes, bool)) or (isinstance(x, torch.Tensor) and x.device.type != "cpu"):   # which would be waited for
        raise TypeError(f"{name} must be a number, not {x.device.type + ' ' if isinstance(x, torch.Tensor) else ''}{type(x).__name__}")
    try:
        value = float(x)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be a number, not {type(x).__name__}") from None
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be positive and finite, not {value}")
    if not 1e-35 <= value <= 1e35:   # it and its inverse are f32 in the kernels
        raise ValueError(f"{name} must be between 1e-35 and 1e35, not {value}")
    return value


def dense(q, k, v, q_scale, k_scale, v_scale, softmax_scale, out_dtype, out_scale, mode, wide=None):
    """All of sdpa_fp8's arguments: the six tensors, then softmax_scale and out_scale. wide: q is of this dtype, of 16 bits, and has no scale."""
    q = codes("q", q, ("B", "Hq", "Sq", "D"), dtype=wide or E4M3)
    k, v = codes("k", k, ("B", "Hkv", "Sk", "D"), q.device), codes("v", v, ("B", "Hkv", "Sk", "D"), q.device)
    B, Hq, Sq, D = q.shape
    head_dim(D)
    if k.shape != v.shape:
        raise ValueError(f"k and v must have one shape, not {tuple(k.shape)} and {tuple(v.shape)}")
    if k.shape[0] != B or k.shape[3] != D:
        raise ValueError(f"k {tuple(k.shape)} does not fit q {tuple(q.shape)}: batch and head dimension must agree")
    Hkv, Sk = k.shape[1], k.shape[2]
    heads(Hq, Hkv)
    if not wide:
        q_scale = scale("q_scale", q_scale, q.device, scale_shapes(B, Hq, Sq))
    k_scale = scale("k_scale", k_scale, q.device, scale_shapes(B, Hkv, Sk))
    v_scale = scale("v_scale", v_scale, q.device, scale_shapes(B, Hkv, Sk))
    return (q, k, v, q_scale, k_scale, v_scale) + options(softmax_scale, D, out_dtype, out_scale, mode)
