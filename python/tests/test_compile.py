"""Every kernel compiles for sm_90a, with the levers that the heuristic gives. Skipped where NVRTC is not installed; needs neither torch nor a GPU."""
import pathlib
import sys
import types
import unittest

_folder = pathlib.Path(__file__).resolve().parents[1] / "warpsmith" / "attention"
_package = types.ModuleType("attention_under_test")   # the package's own front imports torch
_package.__path__ = [str(_folder)]
sys.modules["attention_under_test"] = _package
from attention_under_test import _driver, _heuristic, _kernels, _portable  # noqa: E402

SHAPES = [
    (1, 8, 8, 512, 512, 64, True, True),
    (2, 8, 8, 256, 256, 256, False, True),
    (4, 16, 16, 4096, 4096, 64, False, True),
    (1, 8, 8, 2048, 2048, 64, True, True),
    (4, 16, 16, 4096, 4096, 64, True, True, False, True),   # with log-sum-exp
    (4, 16, 16, 4096, 4096, 128, True, True),
    (1, 8, 8, 2048, 2048, 128, False, True),
    (4, 16, 16, 4096, 4096, 128, False, True, True),         # packed
    (4, 16, 16, 4096, 4096, 128, True, True, False, True),   # with log-sum-exp
    (4, 8, 8, 4096, 4096, 256, False, True),
    (8, 16, 2, 1, 16384, 256, False, True),
    (4, 16, 16, 512, 512, 128, True, False),                 # scales by block
    (8, 64, 2, 1, 16384, 128, False, True),
]


class Compile(unittest.TestCase):
    def test_instances(self):
        try:
            _driver._find_nvrtc()
        except _driver.CudaError as e:
            self.skipTest(str(e))
        for shape in SHAPES:
            choice = _heuristic.choose(_heuristic.Shape(*shape))
            with self.subTest(name=choice.name):
                source = (_kernels.source_folder() / f"{choice.file}.cu").read_text()
                code = _driver.compile_cubin(source, f"{choice.file}.cu", _kernels.source_folder(), choice.defines)
                self.assertTrue(code.startswith(b"\x7fELF"))
                self.assertIn(_kernels.ENTRIES[choice.file].encode(), code)


    def test_packing_keeps_its_registers(self):
        """As many threads on an SM as pack.cu says, for each head dimension and element type."""
        try:
            _driver._find_nvrtc()
        except _driver.CudaError as e:
            self.skipTest(str(e))
        source = (_kernels.source_folder() / "pack.cu").read_text()
        for D in (64, 128, 256):
            for kind in range(3):
                with self.subTest(D=D, kind=kind):
                    ptx = _driver.compile_cubin(source, "pack.cu", _kernels.source_folder(), (("WS_D", D), ("WS_KIND", kind)), "compute_90").decode()
                    threads = (512 if kind == 2 else 1024) // (2 * D)
                    self.assertIn(f".minnctapersm {threads}", ptx)
                    self.assertIn("griddepcontrol.wait", ptx)
                    self.assertTrue(_driver.compile_cubin(source, "pack.cu", _kernels.source_folder(), (("WS_D", D), ("WS_KIND", kind))).startswith(b"\x7fELF"))

    def test_the_portable_kernel_has_a_target_for_every_card(self):
        for capability, target in (((8, 0), "sm_80"), ((8, 6), "sm_80"), ((8, 9), "sm_89"), ((10, 0), "sm_100"), ((10, 3), "sm_100"), ((11, 0), "compute_80"), ((12, 0), "sm_120"), ((12, 1), "sm_120"), ((13, 0), "compute_80")):
            self.assertEqual(_kernels.portable_target(capability), target)
        try:
            _driver._find_nvrtc()
        except _driver.CudaError as e:
            self.skipTest(str(e))
        shape, source = _heuristic.Shape(1, 8, 2, 100, 300, 64, True, True), (_kernels.source_folder() / "portable.cu").read_text()
        # Products in e4m3 where the target is Ada or Blackwell, or asked for; by widened halves elsewhere.
        for choice in (_portable.choose(shape, 58), _portable.choose_lengths(shape, 58)):
            for arch, more, e4m3 in (("compute_80", (), False), ("compute_89", (), True), ("compute_100", (), True), ("compute_120", (), True), ("compute_90", (), False), ("compute_90", (("WS_E4M3", 1),), True)):
                ptx = _driver.compile_cubin(source, "portable.cu", _kernels.source_folder(), choice.defines + more, arch)
                self.assertEqual((b"m16n8k32" in ptx, b"m16n8k16" in ptx), (e4m3, not e4m3), (arch, more))


if __name__ == "__main__":
    unittest.main()
