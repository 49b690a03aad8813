"""What sdpa_fp8_packed asks of V^T and of V's mean before a kernel reads them, and which way a call takes: needs torch, no GPU."""
import contextlib
import inspect
import os
import pathlib
import sys
import unittest
import unittest.mock as mock

if not os.environ.get("WARPSMITH_INSTALLED"):   # else the wheel is tested
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
try:
    import torch
    from torch._subclasses import FakeTensorMode
    from warpsmith import attention as w
    from warpsmith.attention import _call, _packed, _plan
except ImportError as e:
    raise unittest.SkipTest(str(e))

E4 = torch.float8_e4m3fn


def codes(*shape):
    return torch.zeros(shape, dtype=torch.uint8).view(E4)


class Parts(unittest.TestCase):
    def test_values_that_are_not_the_transposed_ones_of_these_keys_are_refused(self):
        k = codes(2, 3, 200, 64)
        good = codes(2, 3, 64, 256)
        self.assertIs(_packed._transposed(good, k), good)
        for what, v_t, error in (("row-major", codes(2, 3, 200, 64), ValueError), ("without the tail's zeros", codes(2, 3, 64, 200), ValueError),
                                 ("of fewer heads", codes(2, 2, 64, 256), ValueError), ("of another batch", codes(1, 3, 64, 256), ValueError),
                                 ("strided", codes(2, 3, 256, 64).transpose(2, 3), ValueError), ("bytes", good.view(torch.uint8), TypeError), ("a list", [good], TypeError)):
            with self.subTest(what), self.assertRaises(error):
                _packed._transposed(v_t, k)

    def test_a_mean_is_what_the_kernel_reads(self):
        k, odd = codes(2, 3, 200, 64), torch.zeros(2 * 3 * 64 + 1)[1:].view(2, 3, 64)
        for right in (None, odd, torch.zeros(2, 64, 3).transpose(1, 2)):
            _packed._check_mean("v_mean", right, k)
        self.assertEqual(_packed._aligned(odd).data_ptr() % 16, 0)
        self.assertTrue(_packed._aligned(torch.zeros(2, 64, 3).transpose(1, 2)).is_contiguous())
        for m, error in ((torch.zeros(2, 3, 63), ValueError), (torch.zeros(2, 1, 64), ValueError), (torch.zeros(2, 3, 64).half(), TypeError), (0.0, TypeError)):
            with self.assertRaises(error):
                _packed._check_mean("v_mean", m, k)


class Ways(unittest.TestCase):
    def test_packed_values_fit_on_hopper_where_queries_and_keys_are_many(self):
        cuda = torch.device("cuda", 0)
        for sms, major_error, shape, fits in ((132, None, (2, 8, 2048, 64), True), (132, None, (2, 8, 1, 64), False), (132, None, (2, 8, 2048, 96), False),
                                              (0, None, (2, 8, 2048, 64), False), (132, NotImplementedError, (2, 8, 2048, 64), False)):
            _call._packed_fits.cache_clear()
            with mock.patch.object(_plan, "sms", side_effect=major_error, return_value=sms):
                self.assertEqual(_call.packed_fits(shape, 8, 2048, False, cuda), fits, (sms, shape))
        _call._packed_fits.cache_clear()
        self.assertFalse(_call.packed_fits((2, 8, 2048, 64), 8, 2048, False, torch.device("cpu")))
        self.assertFalse(_call.packed_fits((2, 8, 2048, 64), 0, 2048, False, cuda))
        self.assertFalse(_call.packed_fits((2, 8, 2048, 64), 3, 2048, False, cuda))

    def test_queries_of_16_bits_go_as_they_are_where_a_kernel_takes_them(self):
        k, q = codes(2, 2, 700, 128), torch.zeros(2, 4, 300, 128, dtype=torch.bfloat16)
        kv = w.PackedKV(k, k, torch.ones(()), torch.ones(()), v_t=codes(2, 2, 128, 768))
        half, across = torch.float16, torch.zeros(2, 4, 128, 300, dtype=torch.bfloat16).transpose(2, 3)
        with mock.patch.object(_call, "packed_fits", return_value=True) as fits:
            self.assertTrue(_packed._takes_wide(q, kv, False, torch.bfloat16, False))
            for what, args in (("another output", (q, kv, False, half, False)), ("e4m3 out", (q, kv, False, E4, False)), ("a log-sum-exp", (q, kv, False, torch.bfloat16, True)),
                               ("no V^T", (q, kv._replace(v_t=None), False, torch.bfloat16, False)), ("strided last dimension", (across, kv, False, torch.bfloat16, False))):
                with self.subTest(what):
                    self.assertFalse(_packed._takes_wide(*args))
            fits.return_value = False
            self.assertFalse(_packed._takes_wide(q, kv, False, torch.bfloat16, False))

    def test_queries_of_16_bits_are_quantised_where_no_kernel_takes_them(self):
        kv = w.pack_kv(*(torch.randn(1, 2, 200, 64) for _ in range(2)))
        q = torch.randn(1, 2, 300, 64, dtype=torch.bfloat16)
        with mock.patch.object(_packed, "_added_after", return_value=(q, None)) as attend, mock.patch.object(_packed._arguments, "dense"):   # which wants a device
            w.sdpa_fp8_packed(q, kv, causal=True)
        want, scale = w.quantize_fp8(q, "block")
        got, _, got_scale, causal = attend.call_args[0][:4]
        self.assertTrue(torch.equal(got.view(torch.uint8), want.view(torch.uint8)) and torch.equal(got_scale, scale) and causal is True)
        with FakeTensorMode():
            e = lambda *s: torch.empty(*s, dtype=E4, device="cuda")
            k, s = e(2, 2, 700, 64), torch.empty((), device="cuda")
            out = w.sdpa_fp8_packed(torch.empty(2, 4, 300, 64, dtype=torch.float16, device="cuda"), w.PackedKV(k, k, s, s, v_t=e(2, 2, 64, 768)), out_dtype=torch.float16)
            self.assertEqual((out.shape, out.dtype), ((2, 4, 300, 64), torch.float16))

    def test_queries_without_a_scale_are_of_16_bits(self):
        kv = w.pack_kv(*(torch.zeros(1, 1, 8, 64) for _ in range(2)))
        for q in (codes(1, 1, 8, 64), torch.zeros(1, 1, 8, 64), torch.zeros(1, 1, 8, 64, dtype=torch.int32), [0.0]):
            with self.assertRaises(TypeError):
                w.sdpa_fp8_packed(q, kv)
        with self.assertRaises(TypeError):   # nor with one
            w.sdpa_fp8_packed(torch.zeros(1, 1, 8, 64, dtype=torch.bfloat16), kv, torch.ones(()))
        with FakeTensorMode():
            k, one = torch.empty(1, 1, 8, 64, dtype=E4, device="cuda"), torch.empty((), device="cuda")
            with self.assertRaisesRegex(ValueError, "gradient"):
                w.sdpa_fp8_packed(torch.empty(1, 1, 8, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True), w.PackedKV(k, k, one, one))
        with self.assertRaisesRegex(ValueError, "B, H, S, D"):
            w.sdpa_fp8_packed(torch.zeros(1, 8, 64, dtype=torch.bfloat16), kv)

    def test_nothing_is_launched_for_wrong_arguments_beside_queries_of_16_bits(self):
        """Quantising is a launch."""
        with FakeTensorMode():
            e = lambda *s: torch.empty(*s, dtype=E4, device="cuda")
            q, k, s = torch.empty(2, 4, 300, 64, dtype=torch.bfloat16, device="cuda"), e(2, 2, 700, 64), torch.empty((), device="cuda")
            kv = w.PackedKV(k, k, s, s)
            with mock.patch.object(_packed._pack, "quantize_fp8") as quantise:
                for named, error in ((dict(softmax_scale=-1.0), ValueError), (dict(out_dtype=torch.float32), TypeError), (dict(causal="yes"), TypeError), (dict(mode="slow"), ValueError)):
                    with self.subTest(named), self.assertRaises(error):
                        w.sdpa_fp8_packed(q, kv, **named)
                for what, wrong, error in (("heads", kv._replace(k=e(2, 3, 700, 64), v=e(2, 3, 700, 64)), ValueError), ("no scale", kv._replace(k_scale=None), TypeError),
                                           ("keys that are no codes", kv._replace(k=k.float()), TypeError)):
                    with self.subTest(what), self.assertRaises(error):
                        w.sdpa_fp8_packed(q, wrong)
                quantise.assert_not_called()

    def test_a_scale_is_missed_where_queries_are_codes(self):
        """A kernel that was given none would read address 0."""
        with FakeTensorMode():
            e = lambda *s: torch.empty(*s, dtype=E4, device="cuda")
            q, k, s = e(2, 4, 300, 64), e(2, 2, 700, 64), torch.empty((), device="cuda")
            for wrong in ((q, k, k, None, s, s), (q.to(torch.bfloat16), k, k, None, s, s), (q.to(torch.bfloat16), k, k, s, s, s), (None, k, k, None, s, s)):
                with self.assertRaises(TypeError):
                    w.sdpa_fp8(*wrong)

    def test_the_op_takes_transposed_values(self):
        with FakeTensorMode():
            e = lambda *s: torch.empty(*s, dtype=E4, device="cuda")
            s, none = torch.empty((), device="cuda"), torch.empty(0, device="cuda")
            q, k = e(2, 4, 300, 64), e(2, 2, 700, 64)
            out, lse = torch.ops.warpsmith.sdpa_fp8_packed(q, k, k, s, s, s, none, none, True, return_lse=True, v_t=e(2, 2, 64, 768))
            self.assertEqual((out.shape, out.dtype, lse.shape), ((2, 4, 300, 64), torch.bfloat16, (2, 4, 300)))
            if "v_t" in w.PackedKV._fields:
                kv = w.PackedKV(k, k, s, s, v_t=e(2, 2, 64, 768))
                self.assertEqual(w.sdpa_fp8_packed(q, kv, s, causal=True, out_dtype=torch.float16).dtype, torch.float16)

    def test_ops_can_be_called_as_their_schemas_say(self):
        """torch leaves out of a call what equals its default."""
        from warpsmith.attention import _ops
        for name, functions in _ops.OPS.items():
            schema = getattr(torch.ops.warpsmith, name).default._schema
            for function in functions:
                parameters = list(inspect.signature(function).parameters.values())
                self.assertEqual(len(parameters), len(schema.arguments), (name, function))
                for p, a in zip(parameters, schema.arguments):
                    self.assertEqual(p.default is not inspect.Parameter.empty, a.has_default_value(), (name, function, p.name))
                    if a.has_default_value() and isinstance(a.default_value, (bool, str, float)):
                        self.assertEqual(p.default, a.default_value, (name, function, p.name))

    def test_the_op_does_what_the_function_does(self):
        """What the op runs on a device, here on tensors that no kernel takes: both say so in the same words."""
        from warpsmith.attention import _ops
        kv = w.pack_kv(*(torch.zeros(1, 1, 8, 64, dtype=torch.float16) for _ in range(2)))
        q, scale, none = codes(1, 1, 8, 64), torch.ones(()), torch.empty(0)
        for call in (lambda: w.sdpa_fp8_packed(q, kv, scale), lambda: _ops._sdpa_fp8_packed(q, kv.k, kv.v, scale, kv.k_scale, kv.v_scale, none, none)):
            with self.assertRaisesRegex(ValueError, "cpu"):
                call()


class Told(unittest.TestCase):
    """What the wheel's launcher is told of calls that pack: the CPU stands in for the device, and nothing for its kernels."""

    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.launcher = mock.Mock(call=lambda *a: None, knows=lambda *a: False, add=mock.Mock(return_value=True))
        kernel = lambda choice, device, entry=None: mock.Mock(function=1, shared_bytes=choice.shared_bytes, dependent=True)
        plan = w._plan
        for owner, name, new in ((torch.Tensor, "is_cuda", True), (w._known, "launcher", self.launcher), (plan, "sms", lambda device: 132), (w._fused, "_major", lambda index: 9), (plan, "_current_stream", lambda index: 0),
                                 (plan._driver, "bind_context", lambda index: None), (plan._driver, "Launch", mock.Mock()), (plan._driver, "encode_tensor_map", lambda *a: None), (plan._kernels, "kernel", kernel),
                                 (torch.cuda, "device", lambda d: contextlib.nullcontext()), (w._memory, "counters", lambda n, *a: torch.zeros(n, dtype=torch.int32)), (w._memory, "empty_strided", None),
                                 (torch._C, "_cuda_getCurrentRawStream", lambda index: 0), (torch._C, "_cuda_getDevice", lambda: None), (torch.cuda, "get_device_capability", lambda d=None: (9, 0))):
            stack.enter_context(mock.patch.object(owner, name, new, create=True))

    def told(self):
        """Of the last call: the function's kind, each launch's number of arguments, how many results, bytes of scratch and counters."""
        kind, _, _, launches, results, _, _, _, scratch_bytes, units = self.launcher.add.call_args.args
        return kind, [len(x[4]) for x in launches], len(results), scratch_bytes, units

    def test_each_call_is_told_whole(self):
        known = w._known
        x = lambda S=512, D=64, dtype=torch.bfloat16: torch.zeros(1, 8, S, D, dtype=dtype)
        rows = [("tensor", torch.bfloat16, [1, 1], 2), ("head", torch.bfloat16, [2], 17), ("head", torch.float32, [1, 1], 16), ("block", torch.bfloat16, [1], 0)]   # maxima, counts and places
        for scales, dtype, launches, units in rows:
            w.quantize_fp8(x(dtype=dtype), scales)
            self.assertEqual(self.told(), (known.QUANTISE, launches, 2, 0, units), scales)
        w.pack_kv(x(), x())
        self.assertEqual(self.told(), (known.PACK, [1], 7, 0, 0))
        w.pack_kv(x(), x(), smooth_k=False)
        self.assertEqual(self.told(), (known.PACK, [1], 6, 0, 0))
        with mock.patch.object(w._call, "packed_fits", lambda *a: False):
            w.sdpa(x(), x(), x())   # codes and scales of three tensors are scratch
        kind, launches, results, scratch_bytes, units = self.told()
        self.assertEqual((kind, launches, results, scratch_bytes), (known.UNMASKED, [2, 4], 1, 3 * (8 * 512 * 64 + 256)))
        self.assertEqual(units, 3 * 2 * 8 + 1)
        with mock.patch.object(w._call, "packed_fits", lambda *a: True):
            w.sdpa(x(4096, 128), x(4096, 128), x(4096, 128), is_causal=True)
        self.assertEqual(self.told()[:3], (known.UNMASKED, [1, 4], 1))


if __name__ == "__main__":
    unittest.main()
