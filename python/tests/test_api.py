"""The functions' arguments, shapes and compilation, on tensors without data: needs torch, no GPU. Skipped where torch is missing."""
import contextlib
import inspect
import logging
import os
import pathlib
import sys
import threading
import unittest
import unittest.mock as mock
import warnings

if not os.environ.get("WARPSMITH_INSTALLED"):   # else the wheel is tested
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import torch
    from torch._subclasses import FakeTensorMode
    from warpsmith import attention as w
except ImportError as e:   # the package needs torch, its tests need no more
    raise unittest.SkipTest(str(e))


def setUpModule():
    logging.disable(logging.ERROR)   # torch logs each error of a fake kernel


def tensors(B=2, Hq=4, Hkv=2, Sq=100, Sk=300, D=64, **changed):
    """Arguments of sdpa_fp8 on a CUDA device that need not exist; a named change replaces one."""
    make = lambda *s: torch.empty(*s, dtype=torch.float8_e4m3fn, device="cuda")
    made = dict(q=make(B, Hq, Sq, D), k=make(B, Hkv, Sk, D), v=make(B, Hkv, Sk, D), q_scale=torch.empty(B, Hq, device="cuda"),
                k_scale=torch.empty((), device="cuda"), v_scale=torch.empty(B, Hkv, -(-Sk // 128), device="cuda"))
    made.update({n: f(made) for n, f in changed.items()})
    return made


# What is wrong -> the error it must be. Keywords are sdpa_fp8's.
WRONG = [
    ("q is no tensor", dict(q=lambda t: 3), {}, TypeError),
    ("q is None", dict(q=lambda t: None), {}, TypeError),
    ("q is a list", dict(q=lambda t: [[1.0]]), {}, TypeError),
    ("q is e5m2", dict(q=lambda t: torch.empty(2, 4, 100, 64, dtype=torch.float8_e5m2, device="cuda")), {}, TypeError),
    ("q is bf16", dict(q=lambda t: t["q"].to(torch.bfloat16)), {}, TypeError),
    ("bytes of torch's own", dict(k=lambda t: t["k"].view(torch.uint8)), {}, TypeError),
    ("v on the CPU", dict(v=lambda t: torch.empty(2, 2, 300, 64, dtype=torch.float8_e4m3fn, device="cpu")), {}, ValueError),
    ("q on the CPU", dict(q=lambda t: torch.empty(2, 4, 100, 64, dtype=torch.float8_e4m3fn, device="cpu")), {}, ValueError),
    ("k on another GPU", dict(k=lambda t: torch.empty(2, 2, 300, 64, dtype=torch.float8_e4m3fn, device="cuda:1")), {}, ValueError),
    ("three dimensions", dict(q=lambda t: t["q"][0]), {}, ValueError),
    ("heads that do not divide", dict(q=lambda t: t["q"][:, :3], q_scale=lambda t: t["q_scale"][:, :3]), {}, ValueError),
    ("another batch", dict(q=lambda t: t["q"][:1], q_scale=lambda t: t["q_scale"][:1]), {}, ValueError),
    ("k longer than v", dict(v=lambda t: t["v"][:, :, :299]), {}, ValueError),
    ("last dimension not contiguous", dict(k=lambda t: t["k"].transpose(2, 3).contiguous().transpose(2, 3)), {}, ValueError),
    ("head dimension 32", dict(q=lambda t: t["q"][..., :32], k=lambda t: t["k"][..., :32], v=lambda t: t["v"][..., :32]), {}, ValueError),
    ("head dimension 96", dict(q=lambda t: torch.empty(2, 4, 100, 96, dtype=torch.float8_e4m3fn, device="cuda"),
                               k=lambda t: torch.empty(2, 2, 300, 96, dtype=torch.float8_e4m3fn, device="cuda"),
                               v=lambda t: torch.empty(2, 2, 300, 96, dtype=torch.float8_e4m3fn, device="cuda")), {}, ValueError),
    ("v of another head dimension", dict(v=lambda t: torch.empty(2, 2, 300, 128, dtype=torch.float8_e4m3fn, device="cuda")), {}, ValueError),
    ("keys without heads", dict(k=lambda t: t["k"][:, :0], v=lambda t: t["v"][:, :0]), {}, ValueError),
    ("last dimension expanded", dict(q=lambda t: t["q"][..., :1].expand(2, 4, 100, 64)), {}, ValueError),
    ("scale of one element", dict(k_scale=lambda t: torch.empty(1, device="cuda")), {}, ValueError),
    ("scale in f16", dict(q_scale=lambda t: t["q_scale"].half()), {}, TypeError),
    ("scale on another GPU", dict(k_scale=lambda t: torch.empty((), device="cuda:1")), {}, ValueError),
    ("scale in f64", dict(q_scale=lambda t: t["q_scale"].double()), {}, TypeError),
    ("scale of q's heads for k", dict(k_scale=lambda t: torch.empty(2, 4, device="cuda")), {}, ValueError),
    ("scale with too many blocks", dict(v_scale=lambda t: torch.empty(2, 2, 4, device="cuda")), {}, ValueError),
    ("scale on the CPU", dict(k_scale=lambda t: torch.empty((), device="cpu")), {}, ValueError),
    ("scale is a number", dict(k_scale=lambda t: 1.0), {}, TypeError),
    ("output in f32", {}, dict(out_dtype=torch.float32), TypeError),
    ("softmax_scale 0", {}, dict(softmax_scale=0.0), ValueError),
    ("softmax_scale nan", {}, dict(softmax_scale=float("nan")), ValueError),
    ("softmax_scale negative", {}, dict(softmax_scale=-0.1), ValueError),
    ("softmax_scale that f32 does not have", {}, dict(softmax_scale=1e-46), ValueError),
    ("out_scale whose inverse f32 does not have", {}, dict(out_scale=1e-40, out_dtype=None), ValueError),
    ("more heads than a grid has", dict(q=lambda t: t["q"][:1, :1].expand(1, 70000, 100, 64), k=lambda t: t["k"][:1, :1].expand(1, 70000, 300, 64),
                                       v=lambda t: t["v"][:1, :1].expand(1, 70000, 300, 64), q_scale=lambda t: t["k_scale"], v_scale=lambda t: t["k_scale"]), {}, ValueError),
    ("softmax_scale infinite", {}, dict(softmax_scale=float("inf")), ValueError),
    ("softmax_scale is a word for a number", {}, dict(softmax_scale="0.5"), TypeError),
    ("softmax_scale is a truth value", {}, dict(softmax_scale=True), TypeError),
    ("softmax_scale is on the device", {}, dict(softmax_scale=lambda: torch.empty((), device="cuda")), TypeError),
    ("causal is text", {}, dict(causal="yes"), TypeError),
    ("return_lse is None", {}, dict(return_lse=None), TypeError),
    ("output is text", {}, dict(out_dtype="bfloat16"), TypeError),
    ("softmax_scale is text", {}, dict(softmax_scale="x"), TypeError),
    ("out_scale without its dtype", {}, dict(out_scale=2.0), ValueError),
    ("out_scale negative", {}, dict(out_scale=-1.0, out_dtype=None), ValueError),
    ("mode", {}, dict(mode="faster"), ValueError),
]


class _Whole:
    """A whole number of another library."""
    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


class _Foreign:
    """An array whose library refuses to hand it over."""
    def __dlpack__(self, **_):
        raise BufferError("not exportable")

    def __dlpack_device__(self):
        return (2, 0)


class Arguments(unittest.TestCase):
    def test_wrong_ones_raise(self):
        with FakeTensorMode(allow_non_fake_inputs=True):
            for what, changed, keywords, error in WRONG:
                if keywords.get("out_dtype", 0) is None:
                    keywords = dict(keywords, out_dtype=torch.float8_e4m3fn)
                keywords = {n: x() if callable(x) and not isinstance(x, torch.dtype) else x for n, x in keywords.items()}
                with self.subTest(what), self.assertRaises(error):
                    w.sdpa_fp8(**tensors(**changed), **keywords)

    def test_without_a_device_wrong_ones_raise_too(self):
        """Real tensors of the CPU, and arrays of other libraries: no driver is needed to say no."""
        e = lambda *s: torch.empty(*s, dtype=torch.float8_e4m3fn)
        one = torch.ones(())
        for error, q in ((ValueError, e(1, 1, 8, 64)), (TypeError, torch.ones(1, 1, 8, 64)), (TypeError, _Foreign()), (TypeError, "q"), (TypeError, 1.0), (TypeError, None)):
            with self.subTest(q=type(q)), self.assertRaises(error):
                w.sdpa_fp8(q, e(1, 1, 8, 64), e(1, 1, 8, 64), one, one, one)
            with self.assertRaises(error):
                w.sdpa_fp8_varlen(q, e(8, 1, 64), e(8, 1, 64), one, one, one, one, one, 8, 8)
            with self.assertRaises(error):
                w.decode_fp8(q, e(1, 8, 1, 64), e(1, 8, 1, 64), one, one, one, one)
            with self.assertRaises(error):
                w.sdpa_fp8_packed(q, w.pack_kv(torch.ones(1, 1, 8, 64), torch.ones(1, 1, 8, 64)), one)
        with self.assertRaises(TypeError):
            w.sdpa_fp8_packed(e(1, 1, 8, 64), (e(1, 1, 8, 64),) * 4, one)
        with self.assertRaises(TypeError):   # keywords only, as published
            w.sdpa_fp8(*(e(1, 1, 8, 64),) * 3, one, one, one, True)

    def test_right_ones_have_the_shapes_that_are_promised(self):
        with FakeTensorMode():
            for dtype, scale in ((torch.bfloat16, None), (torch.float16, None), (torch.float8_e4m3fn, 0.5), (torch.float8_e4m3fn, None)):
                out, lse = w.sdpa_fp8(**tensors(), causal=True, out_dtype=dtype, out_scale=scale, return_lse=True)
                self.assertEqual((tuple(out.shape), out.dtype), ((2, 4, 100, 64), dtype))
                self.assertEqual((tuple(lse.shape), lse.dtype), ((2, 4, 100), torch.float32))
            layouts = tensors(q=lambda t: t["q"].transpose(1, 2).contiguous().transpose(1, 2), k=lambda t: t["k"][:, :1].expand(2, 2, 300, 64))
            self.assertEqual(tuple(w.sdpa_fp8(**layouts).shape), (2, 4, 100, 64))
            for D in (64, 128, 256):
                for sizes in (dict(B=0), dict(Hq=0, Hkv=0), dict(Sq=0), dict(Sk=0), dict(Sq=1), dict(Hq=8, Hkv=1)):
                    with self.subTest(D=D, **sizes):
                        out, lse = w.sdpa_fp8(**tensors(D=D, **sizes), return_lse=True, causal=1)
                        shape = [sizes.get(n, given) for n, given in (("B", 2), ("Hq", 4), ("Sq", 100))]
                        self.assertEqual((list(out.shape), list(lse.shape)), (shape + [D], shape))
            for scale in ((), (2, 2), (2, 2, 3)):
                t = tensors(k_scale=lambda t: torch.empty(scale, device="cuda"), v_scale=lambda t: torch.empty(1, 1, 1, device="cuda").expand(2, 2, 3))
                self.assertEqual(tuple(w.sdpa_fp8(**t, softmax_scale=1).shape), (2, 4, 100, 64))
            # Expanded over the batch, heads and tokens alike: the last dimension alone has to be contiguous.
            t = tensors(k=lambda t: t["k"][:1, :1].expand(2, 2, 300, 64), v=lambda t: t["v"][:, :, :1].expand(2, 2, 300, 64))
            self.assertEqual(tuple(w.sdpa_fp8(**t).shape), (2, 4, 100, 64))

    def test_varlen_and_decode(self):
        with FakeTensorMode():
            e = lambda *s: torch.empty(*s, dtype=torch.float8_e4m3fn, device="cuda")
            one, cu, used = torch.empty((), device="cuda"), torch.empty(4, dtype=torch.int32, device="cuda"), torch.empty(3, dtype=torch.int32, device="cuda")
            call = lambda **kw: w.sdpa_fp8_varlen(e(70, 8, 128), e(90, 2, 128), e(90, 2, 128), one, one, one, kw.pop("cu_q", cu), kw.pop("cu_k", cu),
                                                                    kw.pop("max_q", 40), 50, **kw)
            out, lse = call(return_lse=True)
            self.assertEqual((tuple(out.shape), tuple(lse.shape)), ((70, 8, 128), (8, 70)))
            self.assertEqual(tuple(call(max_q=_Whole(40)).shape), (70, 8, 128))
            for error, kw in ((TypeError, dict(cu_q=cu.long())), (ValueError, dict(cu_k=cu[:3])), (ValueError, dict(max_q=-1)), (TypeError, dict(max_q=4.0)),
                              (TypeError, dict(max_q=True)), (TypeError, dict(max_q=cu[0])), (TypeError, dict(cu_q=None)), (ValueError, dict(cu_q=cu.cpu())),
                              (ValueError, dict(cu_q=cu[:0])), (ValueError, dict(cu_q=torch.empty(8, dtype=torch.int32, device="cuda")[::2])),
                              (TypeError, dict(causal=None)), (ValueError, dict(softmax_scale=0))):
                with self.assertRaises(error):
                    call(**kw)
            table = torch.empty(3, 7, dtype=torch.int32, device="cuda")
            decode = lambda *a, **kw: w.decode_fp8(e(3, 8, 1, 128), *a, one, one, one, used, **kw)
            self.assertEqual(tuple(decode(e(3, 500, 2, 128), e(3, 500, 2, 128)).shape), (3, 8, 1, 128))
            self.assertEqual(tuple(decode(e(20, 16, 2, 128), e(20, 16, 2, 128), page_table=table).shape), (3, 8, 1, 128))
            for error, args, kw in ((ValueError, (e(20, 16, 2, 128), e(20, 16, 2, 128)), {}), (TypeError, (e(20, 16, 2, 128),) * 2, dict(page_table=table.float())),
                                    (ValueError, (e(20, 16, 2, 128),) * 2, dict(page_table=table[:2])), (TypeError, (None, None), {}),
                                    (ValueError, (e(3, 500, 2, 128), e(3, 500, 1, 128)), {}), (ValueError, (e(3, 500, 3, 128),) * 2, {}),
                                    (ValueError, (e(20, 16, 2, 128),) * 2, dict(page_table=table.cpu())), (TypeError, (e(3, 500, 2, 128),) * 2, dict(return_lse="no"))):
                with self.assertRaises(error):
                    decode(*args, **kw)

    def test_signatures_are_the_published_ones(self):
        keywords = ["causal", "softmax_scale", "out_dtype", "out_scale", "return_lse", "mode"]
        for f, positional in ((w.sdpa_fp8, 6), (w.sdpa_fp8_packed, 3), (w.sdpa_fp8_varlen, 10), (w.decode_fp8, 7)):
            names = list(inspect.signature(f).parameters)
            self.assertEqual([n for n in names[positional:] if n != "page_table" and not n.startswith("_")], keywords, f.__name__)
            self.assertTrue(f.__doc__)
        ours = [(n, p.default) for n, p in inspect.signature(w.sdpa).parameters.items()]
        self.assertEqual(ours[3:], [("attn_mask", None), ("dropout_p", 0.0), ("is_causal", False), ("scale", None), ("enable_gqa", False)])


class Quantisation(unittest.TestCase):
    def test_codes_times_scale_is_the_value(self):
        x = torch.randn(2, 3, 300, 64) * 5
        for kind, shape in (("tensor", ()), ("head", (2, 3)), ("block", (2, 3, 3))):
            codes, scale = w.quantize_fp8(x, kind)
            self.assertEqual(tuple(scale.shape), shape)
            wide = scale.repeat_interleave(128, 2)[:, :, :300, None] if kind == "block" else scale[:, :, None, None] if kind == "head" else scale
            self.assertLess(float(((codes.float() * wide - x).norm() / x.norm())), 0.04)
            self.assertEqual(float(codes.float().abs().max()), 448.0)
        self.assertEqual(float(w.quantize_fp8(torch.zeros(1, 1, 2, 64))[1]), 1.0)
        for x, scales, error in ((torch.zeros(2, 3), "head", ValueError), (x.double(), "head", TypeError), (x, "row", ValueError), (x, 3, TypeError)):
            with self.assertRaises(error):
                w.quantize_fp8(x, scales)

    def test_packing_takes_offsets_out(self):
        k, v = torch.randn(1, 2, 300, 64) + 40, torch.randn(1, 2, 300, 64) - 7
        kv = w.pack_kv(k, v)
        self.assertIsInstance(kv, w.PackedKV)
        wide = lambda s: s.repeat_interleave(128, 2)[:, :, :300, None]
        self.assertLess(float((kv.k.float() * wide(kv.k_scale) + kv.k_mean[:, :, None] - k).norm() / (k - 40).norm()), 0.04)
        self.assertLess(float((kv.v.float() * wide(kv.v_scale) + kv.v_mean[:, :, None] - v).norm() / (v + 7).norm()), 0.04)
        same = w.pack_kv(w.quantize_fp8(k), w.quantize_fp8(v))
        self.assertIsNone(same.k_mean)
        self.assertTrue(torch.equal(same.k.view(torch.uint8), w.quantize_fp8(k)[0].view(torch.uint8)))
        pair = w.quantize_fp8(k)
        for bad, error in (((k, v[:, :, :9]), ValueError), (((k, 1), v), TypeError), ((k.double(), v), TypeError), (((pair[0], torch.ones(3)), v), ValueError),
                           (((pair[0], torch.ones(1, 2, 4)), v), ValueError)):
            with self.assertRaises(error):
                w.pack_kv(*bad)
        mixed = w.pack_kv((kv.k, kv.k_scale), v)   # each as it comes
        self.assertIsNone(mixed.k_mean)
        self.assertTrue(torch.equal(mixed.v.view(torch.uint8), kv.v.view(torch.uint8)) and torch.equal(mixed.v_mean, kv.v_mean))
        self.assertIsNone(kv.v_t)   # there is a kernel for it, or it is not made
        old = w.PackedKV(kv.k, kv.v, kv.k_scale, kv.v_scale, kv.k_mean, kv.v_mean)
        self.assertEqual((len(kv), old.v_t, w.PackedKV(*kv).v_mean is kv.v_mean), (7, None, True))

    def test_what_is_taken_out_is_the_mean_over_64_keys_at_most(self):
        for S, tokens in ((5, range(5)), (64, range(64)), (65, [i + (i > 31) for i in range(64)]), (300, [(2 * i + 1) * 300 // 128 for i in range(64)]), (4096, range(32, 4096, 64))):
            x = torch.randn(2, 3, S, 64, dtype=torch.bfloat16) + 5
            want = sum(x[:, :, t].double() for t in tokens) / len(tokens)
            for kind in ("tensor", "head", "block"):
                kv = w.pack_kv(x, x.float(), scales=kind)
                for mean in (kv.k_mean, kv.v_mean):
                    self.assertEqual((mean.dtype, tuple(mean.shape)), (torch.float32, (2, 3, 64)))
                    self.assertTrue(torch.allclose(mean.double(), want, rtol=1e-6), (S, kind))
        off = w.pack_kv(x, x, smooth_k=False, center_v=False)
        self.assertEqual((off.k_mean, off.v_mean), (None, None))
        x[0, 1, 100, 3] = 1e4   # no sample: it is in its block's scale alone
        self.assertLess(float(w.pack_kv(x, x).k_mean.abs().max()), 9.0)

    def test_a_graph_of_packing_gives_what_the_function_gives(self):
        torch.manual_seed(1)
        k, v = torch.randn(1, 2, 300, 64) + 4, torch.randn(1, 2, 300, 64) - 7
        for options in (dict(), dict(scales="head", smooth_k=False), dict(scales="tensor", center_v=False)):
            made = torch.compile(lambda k, v: w.pack_kv(k, v, **options), fullgraph=True, backend="eager")(k, v)
            want = w.pack_kv(k, v, **options)
            self.assertIsInstance(made, w.PackedKV)
            for name, a, b in zip(want._fields, made, want):
                self.assertEqual(a is None, b is None, name)
                self.assertTrue(b is None or torch.equal(a.float(), b.float()), name)

    def test_no_gradient_and_odd_values(self):
        x = torch.randn(1, 1, 9, 64, requires_grad=True)
        codes, scale = w.quantize_fp8(x)
        self.assertFalse(codes.requires_grad or scale.requires_grad)
        kv = w.pack_kv(x, x)
        self.assertFalse(any(t is not None and t.requires_grad for t in kv))
        for shape in ((0, 2, 3, 64), (2, 0, 3, 64), (2, 2, 0, 64)):
            for kind, want in (("tensor", ()), ("head", shape[:2]), ("block", (*shape[:2], -(-shape[2] // 128)))):
                codes, scale = w.quantize_fp8(torch.empty(shape, dtype=torch.bfloat16), kind)
                self.assertEqual((tuple(codes.shape), tuple(scale.shape), codes.dtype, scale.dtype), (shape, want, torch.float8_e4m3fn, torch.float32))
        odd = torch.randn(2, 3, 4, 64).transpose(1, 3)   # no dimension where it was
        self.assertEqual(w.quantize_fp8(odd)[0].shape, odd.shape)


class Gradients(unittest.TestCase):
    def test_a_tensor_that_requires_one_is_refused_outside_of_no_grad(self):
        one = lambda *s, **k: torch.empty(*s, device="cuda", requires_grad=True, **k)
        code = lambda *s: one(*s, dtype=torch.float8_e4m3fn)
        with FakeTensorMode():
            for changed in (dict(q=lambda t: code(2, 4, 100, 64)), dict(v=lambda t: code(2, 2, 300, 64)), dict(k_scale=lambda t: one(()))):
                name = next(iter(changed))
                with self.subTest(name), self.assertRaisesRegex(ValueError, f"^{name} requires a gradient.*no_grad"):
                    w.sdpa_fp8(**tensors(**changed))
                with torch.no_grad():
                    self.assertFalse(w.sdpa_fp8(**tensors(**changed)).requires_grad)
                with torch.inference_mode():
                    w.sdpa_fp8(**tensors(**changed))
            e = lambda *s: torch.empty(*s, dtype=torch.float8_e4m3fn, device="cuda")
            s, cu = torch.empty((), device="cuda"), torch.empty(4, dtype=torch.int32, device="cuda")
            with self.assertRaisesRegex(ValueError, "^q requires"):
                w.sdpa_fp8_varlen(code(70, 8, 128), e(90, 2, 128), e(90, 2, 128), s, s, s, cu, cu, 40, 50)
            with self.assertRaisesRegex(ValueError, "^v_cache requires"):
                w.decode_fp8(e(4, 8, 1, 128), e(4, 50, 2, 128), code(4, 50, 2, 128), s, s, s, cu)
            self.assertFalse(w.quantize_fp8(one(1, 1, 8, 64))[0].requires_grad)


class Plans(unittest.TestCase):
    """Calls up to the driver, which a record stands in for, as the CPU does for the device."""

    def setUp(self):
        self.launched = launched = []

        class Launch:
            def __init__(self, kernel, grid, block, arguments):
                self.kernel, self.params = kernel, arguments[0]

            def __call__(self, stream):
                launched.append((self.kernel.choice, bool(self.params.lse)))
        call, plan = w._call, w._plan
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.loaded = mock.Mock(side_effect=lambda choice, device, entry=None: mock.Mock(choice=choice))
        for owner, name, new in ((torch.Tensor, "is_cuda", True), (w._known, "launcher", None), (call, "_local", threading.local()), (call, "current_device", lambda: None), (plan, "sms", lambda device: 132),
                                 (plan, "_current_stream", lambda index: 0), (plan._driver, "bind_context", lambda index: None), (plan._driver, "Launch", Launch),
                                 (plan._driver, "encode_tensor_map", lambda *a: None), (plan._kernels, "kernel", self.loaded), (torch.cuda, "device", lambda d: contextlib.nullcontext())):
            stack.enter_context(mock.patch.object(owner, name, new, create=True))

    def dense(self, B=2, H=8, S=2000, D=64, blocks=False):
        q, k, v = (torch.zeros(B, H, S, D, dtype=torch.uint8).view(torch.float8_e4m3fn) for _ in range(3))   # no tensor twice: such a call gets no guard
        return [q, k, v, torch.ones(()), torch.ones(B, H), torch.ones(B, H, -(-S // 128)) if blocks else torch.ones(B, H)]

    def files(self):
        said, self.launched[:] = [(c.file, lse) for c, lse in self.launched], []
        return said

    def test_a_log_sum_exp_that_is_wanted_changes_the_plan(self):
        t = self.dense()
        for again in range(3):   # new, by the layout's guard, and after a call of the other kind
            for lse in (False, True, True, False):
                result = w.sdpa_fp8(*t, return_lse=lse)
                self.assertEqual(isinstance(result, tuple), lse)
                self.assertEqual(self.files(), [("forward", True) if lse else ("forward_f16", False)], again)
        self.assertEqual(self.loaded.call_count, 2)
        for lse in (True, False):   # as ops do it, which remember nothing but plans
            out, sums = w._ops._sdpa_fp8(*t, return_lse=lse)
            self.assertEqual(self.files(), [("forward", True) if lse else ("forward_f16", False)])
            self.assertEqual(tuple(sums.shape), (2, 8, 2000) if lse else (0,))
        self.assertEqual(self.loaded.call_count, 2)

    def test_at_128_dimensions_it_does_so_whatever_the_scales(self):
        for t in (self.dense(D=128), self.dense(D=128, blocks=True)):
            for causal in (False, True):
                for lse in (False, True, False):
                    w.sdpa_fp8(*t, causal=causal, return_lse=lse)
                    self.assertEqual(self.files(), [("forward", True) if lse else ("forward_e4m3", False)])

    def test_other_calls_get_one_kernel_with_and_without(self):
        for t, file in ((self.dense(D=256), "forward"), (self.dense(blocks=True), "forward"), (self.dense(S=300, B=1), "tiny")):
            for lse in (False, True):
                w.sdpa_fp8(*t, causal=True, return_lse=lse)
                self.assertEqual(self.files(), [(file, lse)])

    def test_what_was_packed_with_row_major_values_asks_for_what_its_caller_wants(self):
        for D, file in ((64, "forward_f16"), (128, "forward_e4m3")):
            x = torch.zeros(2, 8, 2000, D, dtype=torch.uint8).view(torch.float8_e4m3fn)
            kv = w.PackedKV(x, x, torch.ones(2, 8), torch.ones(2, 8), torch.ones(2, 8, D), torch.ones(2, 8, D))
            for lse in (False, True, False):
                w.sdpa_fp8_packed(x, kv, torch.ones(()), return_lse=lse)
                self.assertEqual(self.files(), [("forward", True) if lse else (file, False)])
            kv = kv._replace(v_t=torch.zeros(2, 8, D, 2048, dtype=torch.uint8).view(torch.float8_e4m3fn))
            with mock.patch.object(w._call, "packed_fits", lambda *a: True):
                for lse in (False, True, False):
                    w.sdpa_fp8_packed(x, kv, torch.ones(()), return_lse=lse)
                    self.assertEqual(self.files(), [("forward", True) if lse else (file, False)])

    def test_the_launcher_is_taught_both(self):
        """The native launcher's key holds the options that a plan is taught under."""
        told = mock.Mock(knows=mock.Mock(return_value=False), add=mock.Mock(return_value=True))
        self.loaded.side_effect = lambda choice, device, entry=None: mock.Mock(choice=choice, dependent=True)
        with mock.patch.object(w._known, "launcher", told):
            for lse in (False, True):
                w._call._checked(*self.dense(), False, None, torch.bfloat16, None, lse, "default", None)
        first, second = (c.args for c in told.add.call_args_list)   # kind, tensors, options, launches, results, ...
        self.assertEqual((first[2][4], second[2][4], len(first[4]), len(second[4])), (False, True, 1, 2))
        for told, results in ((first, 1), (second, 2)):
            (_, words, addresses), *_ = told[3][0][4]   # of the launch's arguments
            wanted = {8 * i: ("tensor", i) for i in range(6)} | {48 + 8 * i: ("result", i) for i in range(results)}
            self.assertEqual({at: source for at, source in addresses if source[0] in ("tensor", "result")}, wanted)
            self.assertEqual(words[:80], bytes(80), "addresses of the first call")

    def test_what_lies_in_scratch_is_apart_and_aligned(self):
        kinds = [(torch.float8_e4m3fn, (2, 3, 5, 64), (960, 320, 64, 1)), None, (torch.float32, (2, 3), (3, 1)), (torch.float8_e4m3fn, (2, 5, 3, 64), (960, 64, 320, 1)), (torch.float32, (), ())]
        sources, end = w._known.laid_out(kinds, 256)
        self.assertEqual(sources, [("scratch", 256), None, ("scratch", 2304), ("scratch", 2560), ("scratch", 4608)])
        self.assertEqual(end, 4864)


class Values(unittest.TestCase):
    """What `checked()` looks at. The CPU stands in for the device, as far as arguments are concerned."""

    def on_a_device(self):
        stack = contextlib.ExitStack()
        stack.enter_context(mock.patch.object(torch.Tensor, "is_cuda", True, create=True))
        stack.enter_context(mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: False))
        return stack

    def dense(self, **scales):
        e = lambda *s: torch.zeros(s, dtype=torch.uint8).view(torch.float8_e4m3fn)
        s = dict(q_scale=torch.ones(2, 4), k_scale=torch.ones(()), v_scale=torch.ones(2, 2, 3))
        s.update(scales)
        return w._call._arguments.dense(e(2, 4, 100, 64), e(2, 2, 300, 64), e(2, 2, 300, 64), *s.values(), None, torch.bfloat16, None, "default")

    def test_scales(self):
        at = lambda shape, index, x: torch.ones(shape).index_put(tuple(map(torch.tensor, index)), torch.tensor(x)) if index else torch.full(shape, x)
        rows = [("q_scale", (2, 4), (1, 2), -0.5, r"q_scale\[1, 2\] is -0.5"), ("k_scale", (), (), float("nan"), "k_scale is nan"), ("k_scale", (), (), -1e-30, "k_scale is -"),
                ("v_scale", (2, 2, 3), (0, 1, 2), float("inf"), r"v_scale\[0, 1, 2\] is inf"), ("v_scale", (2, 2), (1, 0), -float("inf"), r"v_scale\[1, 0\] is -inf")]
        with self.on_a_device():
            for name, shape, index, x, said in rows:
                wrong = {name: at(shape, index, x)}
                self.dense(**wrong)   # nobody asked: it is not waited for
                with self.subTest(said), w.checked(), self.assertRaisesRegex(ValueError, f"^{said}.*finite and not negative"):
                    self.dense(**wrong)
            with w.checked():
                self.dense(k_scale=torch.zeros(()))   # zeros are values
                self.dense(k_scale=-torch.zeros(()))
            self.dense(k_scale=-torch.ones(()))

    def test_lengths_and_pages(self):
        e = lambda *s: torch.zeros(s, dtype=torch.uint8).view(torch.float8_e4m3fn)
        i, one = lambda *x: torch.tensor(x, dtype=torch.int32), torch.ones(())
        options = (None, torch.bfloat16, None, "default")
        varlen = lambda cu_q, cu_k: w._ragged.check_varlen(e(70, 8, 64), e(90, 2, 64), e(90, 2, 64), one, one, one, cu_q, cu_k, 40, 50, *options)
        decode = lambda used, table=None: w._ragged.check_decode(e(2, 8, 1, 64), *(e(*((5, 16) if table is not None else (2, 48)), 2, 64),) * 2, one, one, one, used, table, *options)
        table = torch.tensor([[0, 4, 7], [3, -1, -1]], dtype=torch.int32)
        rows = [
            (varlen, (i(0, 40, 70), i(0, 50, 90)), None), (varlen, (i(3, 40, 70), i(0, 0, 50)), None),
            (varlen, (i(0, 41, 70), i(0, 50, 90)), r"cu_seqlens_q\[1\] is 41"), (varlen, (i(0, 40, 71), i(0, 50, 90)), "from 0 to 71"),
            (varlen, (i(0, 40, 70), i(0, 50, 40)), r"cu_seqlens_k\[2\] is 40"), (varlen, (i(-1, 30, 60), i(0, 50, 90)), "from -1"),
            (decode, (i(0, 48),), None), (decode, (i(49, 1),), r"cache_seqlens\[0\] is 49"), (decode, (i(3, -1),), r"cache_seqlens\[1\] is -1"),
            (decode, (i(32, 16), table), None),   # entries behind the end are nobody's
            (decode, (i(33, 16), table), r"page_table\[0, 2\] is 7"), (decode, (i(1, 17), table), r"page_table\[1, 1\] is -1"),
        ]
        with self.on_a_device():
            for call, args, said in rows:
                call(*args)
                with self.subTest(args=args), w.checked():
                    if said is None:
                        call(*args)
                    else:
                        with self.assertRaisesRegex(ValueError, said):
                            call(*args)

    def test_checks_end_with_their_block_and_wait_for_no_graph(self):
        values = w._values
        before = values.looked_at
        with self.assertRaises(ZeroDivisionError), w.checked():
            with w.checked():
                pass
            self.assertEqual(values.looked_at, before + 1)
            1 / 0
        self.assertEqual(values.looked_at, before)
        with self.on_a_device(), mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True), w.checked(), self.assertRaisesRegex(RuntimeError, "captured"):
            self.dense()
        with FakeTensorMode(), w.checked():   # tensors without values have none that are wrong
            self.assertEqual(tuple(w.sdpa_fp8(**tensors()).shape), (2, 4, 100, 64))

    def test_a_wrong_scale_on_the_cpu_is_seen_unasked(self):
        codes, scale = w.quantize_fp8(torch.randn(1, 2, 300, 64), "block")
        w.pack_kv((codes, scale), (codes, scale))
        for bad in (-1.0, float("nan"), float("inf")):
            wrong = scale.clone()
            wrong[0, 1, 2] = bad
            with self.assertRaisesRegex(ValueError, r"v's scale\[0, 1, 2\]"):
                w.pack_kv((codes, scale), (codes, wrong))
        x = torch.randn(1, 2, 30, 64)
        x[0, 1, 7, 5] = float("inf")
        w.quantize_fp8(x)   # nobody asked
        for call in (lambda: w.quantize_fp8(x), lambda: w.pack_kv(torch.zeros_like(x), x)):
            with w.checked(), self.assertRaisesRegex(ValueError, r"^[xv]\[0, 1, 7, 5\] is inf"):
                call()
        with self.assertRaisesRegex(ValueError, r"k's codes must be"):
            w.pack_kv((codes[0], scale), (codes, scale))


class DropIn(unittest.TestCase):
    def test_falls_back_with_one_warning_and_torchs_own_result(self):
        q, k, v = (torch.randn(2, 4, 33, 64) for _ in range(3))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for keywords in (dict(attn_mask=torch.ones(33, 33, dtype=torch.bool).tril()), dict(attn_mask=torch.ones(33, 33, dtype=torch.bool)), dict(is_causal=True, scale=0.2)):
                ours = w.sdpa(q, k, v, **keywords)
                self.assertTrue(torch.equal(ours, torch.nn.functional.scaled_dot_product_attention(q, k, v, **keywords)))
        self.assertEqual(len(caught), 2)   # a mask, and f32

    def test_what_it_does_not_take_goes_to_torch_unchanged(self):
        F = torch.nn.functional.scaled_dot_product_attention
        h = lambda *s: torch.randn(*s, dtype=torch.bfloat16)
        q, k, v = h(2, 4, 33, 64), h(2, 2, 40, 64), h(2, 2, 40, 64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for args, keywords in (((q, k, v), dict(enable_gqa=True)), ((q, k, v), dict(enable_gqa=True, is_causal=True, scale=-0.3)), ((q[0, 0],) * 3, {}),
                                   ((h(2, 4, 33, 96),) * 3, dict(scale=float("inf"))), ((h(0, 4, 3, 64),) * 3, {})):
                self.assertTrue(torch.equal(w.sdpa(*args, **keywords).nan_to_num(), F(*args, **keywords).nan_to_num()))
            x = torch.randn(1, 1, 5, 64, requires_grad=True)
            w.sdpa(x, x, x).sum().backward()
            self.assertIsNotNone(x.grad)
            for bad in ((None, k, v), (q, k, v.double())):
                with self.assertRaises((TypeError, ValueError, RuntimeError)):
                    w.sdpa(*bad)
            for bad in ((q, k[..., :32], v), (q, k, v[:, :, :7])):   # torch's own crashes the process for some of it
                for keywords in (dict(enable_gqa=True), dict(dropout_p=0.5)):
                    with self.assertRaisesRegex(ValueError, "one (head dimension|number of keys)"):
                        w.sdpa(*bad, **keywords)
            with self.assertRaisesRegex(TypeError, "is_causal"):
                w.sdpa(q, q, q, is_causal="yes")
            for p in (2.0, -0.1, float("nan")):
                with self.assertRaisesRegex(ValueError, "dropout_p"):
                    w.sdpa(q, q, q, None, p)


class Compiled(unittest.TestCase):
    def test_one_graph(self):
        """Dynamo takes each function whole; strict export says so without a device."""
        class Model(torch.nn.Module):
            def forward(self, q, k, v, q_scale, k_scale, v_scale):
                a, lse = w.sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, causal=True, return_lse=True)
                kv = w.pack_kv(k.to(torch.bfloat16), v.to(torch.bfloat16))
                b = w.sdpa_fp8_packed(q, kv, q_scale, causal=True)
                return a + b, lse
        with FakeTensorMode(allow_non_fake_inputs=True):
            inputs = tuple(tensors().values())
            with torch.device("meta"):
                model = Model()
            graph = torch.export.export(model, inputs, strict=True).graph
        called = {str(n.target) for n in graph.nodes if n.op == "call_function"}
        self.assertTrue({"warpsmith.sdpa_fp8.default", "warpsmith.pack_kv.default"} <= called, called)

    def test_the_drop_in_is_one_op_where_it_fits(self):
        class Model(torch.nn.Module):
            def forward(self, q, k, v):
                return w.sdpa(q, k, v, is_causal=True) + w.sdpa(q[0], k[0], v[0])
        with FakeTensorMode(allow_non_fake_inputs=True), mock.patch.object(w._dropin, "_unfit", lambda *a: None):
            inputs = tuple(torch.empty(2, 4, s, 64, dtype=torch.bfloat16, device="cuda") for s in (100, 300, 300))
            with torch.device("meta"):
                model = Model()
            graph = torch.export.export(model, inputs, strict=True).graph
        called = [str(n.target) for n in graph.nodes if n.op == "call_function"]
        self.assertEqual([c for c in called if c.startswith("warpsmith")], ["warpsmith.sdpa_unmasked.default"] * 2, called)

    def test_every_op_has_a_fake_kernel_that_says_what_the_function_gives(self):
        ops = torch.ops.warpsmith
        with FakeTensorMode():
            t = list(tensors().values())
            e = lambda *s: torch.empty(*s, dtype=torch.float8_e4m3fn, device="cuda")
            one, cu = torch.empty((), device="cuda"), torch.empty(3, dtype=torch.int32, device="cuda")
            x = torch.empty(2, 4, 100, 64, dtype=torch.bfloat16, device="cuda")
            kv = ops.pack_kv(x, x)
            rows = [
                (ops.sdpa_fp8(*t, True, None, torch.float16, None, True), [(2, 4, 100, 64), (2, 4, 100)]),
                (ops.sdpa_fp8(*t), [(2, 4, 100, 64), (0,)]),
                (ops.sdpa_fp8_varlen(e(70, 8, 64), e(90, 2, 64), e(90, 2, 64), one, one, one, cu, cu, 40, 50, return_lse=True), [(70, 8, 64), (8, 70)]),
                (ops.decode_fp8(e(2, 8, 1, 64), e(2, 50, 2, 64), e(2, 50, 2, 64), one, one, one, cu[:2], return_lse=True), [(2, 8, 1, 64), (2, 8, 1)]),
                (ops.quantize_fp8(x, "block"), [(2, 4, 100, 64), (2, 4, 1)]),
                (kv[:6], [(2, 4, 100, 64)] * 2 + [(2, 4, 1)] * 2 + [(2, 4, 64)] * 2),
                ([y for y in w.pack_kv(x, x) if y is not None], [tuple(y.shape) for y in kv if y.dim() > 1]),
                (kv[6:], [(2, 4, 64, 128) if w._fused.on_hopper(x) else (0,)]),
                (ops.pack_kv(x, x, "head", False, False)[4:], [(0,)] * 3),
                ((ops.sdpa_unmasked(x, x, x, True, 0.1),), [(2, 4, 100, 64)]),
                (ops.sdpa_fp8_packed(t[0], *kv[:2], t[3], *kv[2:6], return_lse=True), [(2, 4, 100, 64), (2, 4, 100)]),
            ]
            if torch.cuda.is_available():   # it asks the device what it is
                rows.append(((ops.sdpa(x, x, x, is_causal=True),), [(2, 4, 100, 64)]))
        for made, want in rows:
            self.assertEqual([tuple(y.shape) for y in made], want)

    def test_shapes_that_change_make_no_new_graph(self):
        """Sizes stay symbols through the fake kernels, as torch.compile(dynamic=True) has them."""
        class Model(torch.nn.Module):
            def forward(self, q, k, v, q_scale, k_scale, v_scale):
                return w.sdpa_fp8(q, k, v, q_scale, k_scale, v_scale, return_lse=True)
        with FakeTensorMode(allow_non_fake_inputs=True):
            inputs = tuple(tensors(v_scale=lambda t: torch.empty(2, 2, device="cuda")).values())
            with torch.device("meta"):
                model = Model()
            sq, sk = torch.export.Dim("sq", min=2, max=4096), torch.export.Dim("sk", min=2, max=4096)
            exported = torch.export.export(model, inputs, strict=True, dynamic_shapes=dict(
                q={2: sq}, k={2: sk}, v={2: sk}, q_scale=None, k_scale=None, v_scale=None))
        self.assertEqual(len(exported.range_constraints), 2)


if __name__ == "__main__":
    unittest.main()
