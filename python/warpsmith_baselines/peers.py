"""Each baseline by name: what it makes of a problem's tensors, and one call of it. PyTorch and the packages are imported when they are asked for.

A peer has `arrange(tensors)`: the tensors as the implementation wants them, made once for each set of inputs and never timed; `call(x)`:
what is timed; `values(out, x)`: the output in f32 as the task has it; `around()`: a context for all calls. Attention's tensors are
(B, H, S, D); K and V may have fewer heads. A causal mask is aligned to the last query and the last key.
"""
import contextlib
import importlib
import math

import torch
import torch.nn.functional as F

from warpsmith_baselines.wire import Absent

PACKAGES = {"fa3_fwd_interface": "fa3-fwd", "cudnn": "nvidia-cudnn-frontend", "flash_attn": "flash-attn", "sageattention": "sageattention"}
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "e4m3": torch.float8_e4m3fn,
          "e5m2": torch.float8_e5m2, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}


def package(module):
    """A package's module, or why it is not to be had."""
    name = PACKAGES[module]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name != module:
            raise Absent("the package %s needs %s: python3 -m pip install %s" % (name, e.name, e.name)) from e
        raise Absent("the package %s is not installed: python3 -m pip install %s" % (name, name)) from e
    except Exception as e:
        why = (str(e).strip() or repr(e)).splitlines()[-1][:200]
        raise Absent("the package %s is installed and does not load (%s): python3 -m pip install --upgrade %s" % (name, why, name)) from e


def seqs_first(x):
    """(B, H, S, D) with S before H in memory, as (B, S, H, D); also for types that PyTorch does not copy by itself."""
    raw = x.view(torch.uint8) if x.dtype.itemsize == 1 else x
    return raw.transpose(1, 2).contiguous().view(x.dtype)


def first(out):
    return out[0] if isinstance(out, (tuple, list)) else out


class Peer:
    detail = ""

    def around(self):
        return contextlib.nullcontext()

    def values(self, out, x):
        return out.float()


class Attention(Peer):
    def __init__(self, problem):
        self.problem = problem
        self.causal = problem["causal"]
        self.scale = problem["scalars"].get("softmax_scale")

    def tensors(self, t):
        found = []
        for name in "qkv":
            x = t[name]
            while x.dim() < 4:
                x = x.unsqueeze(0)
            found.append(x)
        return found

    def arrange(self, t):
        return self.tensors(t)


class Sdpa(Attention):
    """`torch.nn.functional.scaled_dot_product_attention`, one of its backends or the one that it chooses."""

    def __init__(self, problem, backend):
        super().__init__(problem)
        from torch.nn.attention import SDPBackend
        words = {"flash": SDPBackend.FLASH_ATTENTION, "mem_efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH,
                 "cudnn": SDPBackend.CUDNN_ATTENTION}
        self.backend = words.get(backend)

    def around(self):
        # Outside of the calls: entering it costs the host as much as a call does.
        from torch.nn.attention import sdpa_kernel
        return contextlib.nullcontext() if self.backend is None else sdpa_kernel(self.backend)

    def arrange(self, t):
        q, k, v = x = self.tensors(t)
        self.keywords = {"scale": self.scale}
        if q.shape[1] != k.shape[1]:
            self.keywords["enable_gqa"] = True
        if self.causal and q.shape[2] != k.shape[2]:
            from torch.nn.attention.bias import causal_lower_right
            self.keywords["attn_mask"] = causal_lower_right(q.shape[2], k.shape[2])
        elif self.causal:
            self.keywords["is_causal"] = True
        if self.backend is None and "attn_mask" not in self.keywords:
            with contextlib.suppress(Exception):
                from torch.nn.attention import SDPBackend
                chosen = torch._fused_sdp_choice(q, k, v, None, 0.0, self.causal, scale=self.scale, enable_gqa=q.shape[1] != k.shape[1])
                self.detail = "PyTorch chose " + SDPBackend(chosen).name.lower()
        return x

    def call(self, x):
        return F.scaled_dot_product_attention(x[0], x[1], x[2], **self.keywords)


class Fa3(Attention):
    """FlashAttention-3. FP8 takes one scale for each key head; the query's is shared by the heads of a group."""

    def __init__(self, problem):
        super().__init__(problem)
        self.module = package("fa3_fwd_interface")

    def arrange(self, t):
        q, k, v = self.tensors(t)
        x = [seqs_first(y) for y in (q, k, v)]
        self.names = {}
        if "q_scale" in t:
            b, hq, hkv = q.shape[0], q.shape[1], k.shape[1]
            for name, heads in (("q_scale", hq), ("k_scale", hkv), ("v_scale", hkv)):
                s = t[name]
                if s.numel() not in (1, b * heads):
                    raise Absent("it takes one scale for each head, not for each block of keys: --scales head or tensor")
                s = s.reshape(1, 1).expand(b, heads) if s.numel() == 1 else s.reshape(b, heads)
                if heads != hkv:
                    groups = s.reshape(b, hkv, heads // hkv)
                    if not bool((groups == groups[:, :, :1]).all()):
                        raise Absent("it takes one scale of q for each key head, and these differ within a group")
                    s = groups[:, :, 0]
                self.names[name[0] + "_descale"] = len(x)
                x.append(s.contiguous())
        short = q.shape[2] <= 8 and q.shape[2] < k.shape[2]
        self.function = self.module.flash_attn_with_kvcache if short else self.module.flash_attn_func
        self.keywords = {"causal": self.causal, "softmax_scale": self.scale}
        if short:
            self.keywords["num_splits"] = 0
        return x

    def call(self, x):
        scales = {name: x[i] for name, i in self.names.items()}
        return first(self.function(x[0], x[1], x[2], **self.keywords, **scales))

    def values(self, out, x):
        return out.transpose(1, 2).float()


class Cudnn(Attention):
    """cuDNN's own graph interface. FP8: one scale a tensor, e4m3 out, which is all that its Hopper kernels offer."""

    handle = None

    def __init__(self, problem, fp8):
        super().__init__(problem)
        torch.backends.cudnn.version()          # loads PyTorch's own libcudnn before the frontend looks for one
        self.cudnn, self.fp8, self.graph = package("cudnn"), fp8, None
        if Cudnn.handle is None:
            Cudnn.handle = self.cudnn.create_handle()

    def arrange(self, t):
        x = self.tensors(t)
        if self.fp8:
            # Strides of (B, S, H, D) in memory: what FP8 models have.
            x = [seqs_first(y).transpose(1, 2) for y in x]
            scales = [t[n + "_scale"].reshape(-1) for n in "qkv"]
            if any(s.numel() != 1 for s in scales):
                raise Absent("it takes one scale for each tensor")
            largest = (x[2].float().abs().max() * scales[2]).clamp_min(1e-30)
            one = lambda value: torch.as_tensor(value, dtype=torch.float32, device=x[0].device).reshape(1, 1, 1, 1).clone()
            x += [one(s) for s in scales] + [one(1 / 256), one(256.0), one(448.0 / largest)]
        if self.graph is None:
            self.build(x)
        return x

    def out(self, x):
        b, h, s = x[0].shape[:3]
        o = torch.empty(b, s, h, x[2].shape[3], device=x[0].device, dtype=torch.uint8 if self.fp8 else x[0].dtype)
        return (o.view(torch.float8_e4m3fn) if self.fp8 else o).transpose(1, 2)

    def build(self, x):
        c = self.cudnn
        types = {torch.float16: c.data_type.HALF, torch.bfloat16: c.data_type.BFLOAT16, torch.float8_e4m3fn: c.data_type.FP8_E4M3}
        io, f32 = types[x[0].dtype], c.data_type.FLOAT
        g = c.pygraph(io_data_type=io, intermediate_data_type=f32, compute_data_type=f32, handle=Cudnn.handle)
        self.inputs = [g.tensor(name="x%d" % i, dim=list(y.shape), stride=list(y.stride()), data_type=f32 if i > 2 else io) for i, y in enumerate(x)]
        scale = self.scale if self.scale is not None else 1 / math.sqrt(x[0].shape[3])
        mask = {"use_causal_mask": True} if self.causal else {}
        if self.causal and x[0].shape[2] != x[1].shape[2]:
            if self.fp8:
                raise Absent("its FP8 kernels have no causal mask for queries and keys of different lengths")
            mask = {"use_causal_mask_bottom_right": True}
        keywords = {"attn_scale": scale, "generate_stats": False, "name": "sdpa", **mask}
        q, k, v = self.inputs[:3]
        if self.fp8:
            dq, dk, dv, ds, ss, so = self.inputs[3:]
            out, _, *amax = g.sdpa_fp8(q=q, k=k, v=v, descale_q=dq, descale_k=dk, descale_v=dv, descale_s=ds, scale_s=ss, scale_o=so, **keywords)
            for y in amax:
                y.set_output(True).set_dim([1] * 4).set_stride([1] * 4).set_data_type(f32)
        else:
            out, amax = g.sdpa(q=q, k=k, v=v, **keywords)[0], []
        o = self.out(x)
        out.set_output(True).set_dim(list(o.shape)).set_stride(list(o.stride())).set_data_type(io)
        g.validate()
        g.build_operation_graph()
        g.create_execution_plans([c.heur_mode.A, c.heur_mode.FALLBACK])
        g.check_support()
        g.build_plans()
        self.graph, self.output, self.amax = g, out, amax
        self.scratch = [torch.zeros(1, 1, 1, 1, device=o.device) for _ in amax]
        self.workspace = torch.empty(max(1, g.get_workspace_size()), device=o.device, dtype=torch.uint8)

    def call(self, x):
        o = self.out(x)
        pack = dict(zip(self.inputs, x))
        pack[self.output] = o
        pack.update(zip(self.amax, self.scratch))
        self.cudnn.set_stream(handle=Cudnn.handle, stream=torch.cuda.current_stream().cuda_stream)
        self.graph.execute(pack, self.workspace, handle=Cudnn.handle)
        return o

    def values(self, out, x):
        return out.float() / x[8] if self.fp8 else out.float()


class FlashAttn(Attention):
    """The package flash-attn: FlashAttention-2."""

    def __init__(self, problem):
        super().__init__(problem)
        self.function = package("flash_attn").flash_attn_func

    def arrange(self, t):
        return [seqs_first(y) for y in self.tensors(t)]

    def call(self, x):
        return first(self.function(x[0], x[1], x[2], softmax_scale=self.scale, causal=self.causal))

    def values(self, out, x):
        return out.transpose(1, 2).float()


class Sage(Attention):
    """SageAttention: quantises inside, from f16; what it quantises is part of its time."""

    def __init__(self, problem):
        super().__init__(problem)
        self.function = package("sageattention").sageattn

    def call(self, x):
        return first(self.function(x[0], x[1], x[2], tensor_layout="HND", is_causal=self.causal, sm_scale=self.scale))


class RmsNorm(Peer):
    """`torch.nn.functional.rms_norm`."""

    def __init__(self, problem):
        self.eps = problem["scalars"].get("eps")

    def arrange(self, t):
        return [t["x"], t["weight"]]

    def call(self, x):
        return F.rms_norm(x[0], x[1].shape, x[1], self.eps)


def peer(name, problem):
    """The implementation of that name."""
    family, _, rest = name.partition(":")
    if family == "sdpa":
        return Sdpa(problem, rest.rpartition(":")[2])
    if family == "fa3":
        return Fa3(problem)
    if family == "cudnn":
        return Cudnn(problem, rest == "fp8")
    made = {"flash_attn": FlashAttn, "sage": Sage, "torch:rms_norm": RmsNorm}.get(name) or {"flash_attn": FlashAttn, "sage": Sage}.get(family)
    if made is None:
        raise Absent("this process knows no baseline %s" % name)
    return made(problem)
