"""The functions' arguments, shapes and compilation, on tensors without data: needs torch, no GPU. Skipped where torch is missing."""
import inspect
import logging
import pathlib
import sys
import unittest
import warnings

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
    ("q is bf16", dict(q=lambda t: t["q"].to(torch.bfloat16)), {}, TypeError),
    ("bytes of torch's own", dict(k=lambda t: t["k"].view(torch.uint8)), {}, TypeError),
    ("v on the CPU", dict(v=lambda t: torch.empty(2, 2, 300, 64, dtype=torch.float8_e4m3fn, device="cpu")), {}, ValueError),
    ("three dimensions", dict(q=lambda t: t["q"][0]), {}, ValueError),
    ("heads that do not divide", dict(q=lambda t: t["q"][:, :3], q_scale=lambda t: t["q_scale"][:, :3]), {}, ValueError),
    ("another batch", dict(q=lambda t: t["q"][:1], q_scale=lambda t: t["q_scale"][:1]), {}, ValueError),
    ("k longer than v", dict(v=lambda t: t["v"][:, :, :299]), {}, ValueError),
    ("last dimension not contiguous", dict(k=lambda t: t["k"].transpose(2, 3).contiguous().transpose(2, 3)), {}, ValueError),
    ("head dimension 32", dict(q=lambda t: t["q"][..., :32], k=lambda t: t["k"][..., :32], v=lambda t: t["v"][..., :32]), {}, ValueError),
    ("scale in f64", dict(q_scale=lambda t: t["q_scale"].double()), {}, TypeError),
    ("scale of q's heads for k", dict(k_scale=lambda t: torch.empty(2, 4, device="cuda")), {}, ValueError),
    ("scale with too many blocks", dict(v_scale=lambda t: torch.empty(2, 2, 4, device="cuda")), {}, ValueError),
    ("scale on the CPU", dict(k_scale=lambda t: torch.empty((), device="cpu")), {}, ValueError),
    ("scale is a number", dict(k_scale=lambda t: 1.0), {}, TypeError),
    ("output in f32", {}, dict(out_dtype=torch.float32), TypeError),
    ("softmax_scale 0", {}, dict(softmax_scale=0.0), ValueError),
    ("softmax_scale nan", {}, dict(softmax_scale=float("nan")), ValueError),
    ("softmax_scale is text", {}, dict(softmax_scale="x"), TypeError),
    ("out_scale without its dtype", {}, dict(out_scale=2.0), ValueError),
    ("out_scale negative", {}, dict(out_scale=-1.0, out_dtype=None), ValueError),
    ("mode", {}, dict(mode="faster"), ValueError),
]


class Arguments(unittest.TestCase):
    def test_wrong_ones_raise(self):
        with FakeTensorMode(allow_non_fake_inputs=True):
            for what, changed, keywords, error in WRONG:
                if keywords.get("out_dtype", 0) is None:
                    keywords = dict(keywords, out_dtype=torch.float8_e4m3fn)
                with self.subTest(what), self.assertRaises(error):
                    w.sdpa_fp8(**tensors(**changed), **keywords)

    def test_right_ones_have_the_shapes_that_are_promised(self):
        with FakeTensorMode():
            for dtype, scale in ((torch.bfloat16, None), (torch.float16, None), (torch.float8_e4m3fn, 0.5), (torch.float8_e4m3fn, None)):
                out, lse = w.sdpa_fp8(**tensors(), causal=True, out_dtype=dtype, out_scale=scale, return_lse=True)
                self.assertEqual((tuple(out.shape), out.dtype), ((2, 4, 100, 64), dtype))
                self.assertEqual((tuple(lse.shape), lse.dtype), ((2, 4, 100), torch.float32))
            layouts = tensors(q=lambda t: t["q"].transpose(1, 2).contiguous().transpose(1, 2), k=lambda t: t["k"][:, :1].expand(2, 2, 300, 64))
            self.assertEqual(tuple(w.sdpa_fp8(**layouts).shape), (2, 4, 100, 64))

    def test_varlen_and_decode(self):
        with FakeTensorMode():
            e = lambda *s: torch.empty(*s, dtype=torch.float8_e4m3fn, device="cuda")
            one, cu, used = torch.empty((), device="cuda"), torch.empty(4, dtype=torch.int32, device="cuda"), torch.empty(3, dtype=torch.int32, device="cuda")
            call = lambda **kw: w.sdpa_fp8_varlen(e(70, 8, 128), e(90, 2, 128), e(90, 2, 128), one, one, one, kw.pop("cu_q", cu), kw.pop("cu_k", cu),
                                                                    kw.pop("max_q", 40), 50, **kw)
            out, lse = call(return_lse=True)
            self.assertEqual((tuple(out.shape), tuple(lse.shape)), ((70, 8, 128), (8, 70)))
            for error, kw in ((TypeError, dict(cu_q=cu.long())), (ValueError, dict(cu_k=cu[:3])), (ValueError, dict(max_q=-1))):
                with self.assertRaises(error):
                    call(**kw)
            table = torch.empty(3, 7, dtype=torch.int32, device="cuda")
            decode = lambda *a, **kw: w.decode_fp8(e(3, 8, 1, 128), *a, one, one, one, used, **kw)
            self.assertEqual(tuple(decode(e(3, 500, 2, 128), e(3, 500, 2, 128)).shape), (3, 8, 1, 128))
            self.assertEqual(tuple(decode(e(20, 16, 2, 128), e(20, 16, 2, 128), page_table=table).shape), (3, 8, 1, 128))
            for error, args, kw in ((ValueError, (e(20, 16, 2, 128), e(20, 16, 2, 128)), {}), (TypeError, (e(20, 16, 2, 128),) * 2, dict(page_table=table.float())),
                                    (ValueError, (e(20, 16, 2, 128),) * 2, dict(page_table=table[:2]))):
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
        for bad, error in (((k, v[:, :, :9]), ValueError), (((k, 1), v), TypeError), ((k.double(), v), TypeError)):
            with self.assertRaises(error):
                w.pack_kv(*bad)


class DropIn(unittest.TestCase):
    def test_falls_back_with_one_warning_and_torchs_own_result(self):
        q, k, v = (torch.randn(2, 4, 33, 64) for _ in range(3))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for keywords in (dict(attn_mask=torch.ones(33, 33, dtype=torch.bool).tril()), dict(attn_mask=torch.ones(33, 33, dtype=torch.bool)), dict(is_causal=True, scale=0.2)):
                ours = w.sdpa(q, k, v, **keywords)
                self.assertTrue(torch.equal(ours, torch.nn.functional.scaled_dot_product_attention(q, k, v, **keywords)))
        self.assertEqual(len(caught), 2)   # a mask, and f32


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
        self.assertTrue({"warpsmith.sdpa_fp8.default", "warpsmith.quantize_fp8.default"} <= called, called)


if __name__ == "__main__":
    unittest.main()
