"""Every kernel compiles for sm_90a, with the levers that the heuristic gives. Skipped where NVRTC is not installed; needs neither torch nor a GPU."""
import pathlib
import sys
import types
import unittest

_folder = pathlib.Path(__file__).resolve().parents[1] / "warpsmith" / "attention"
_package = types.ModuleType("attention_under_test")   # the package's own front imports torch
_package.__path__ = [str(_folder)]
sys.modules["attention_under_test"] = _package
from attention_under_test import _driver, _heuristic, _kernels  # noqa: E402

SHAPES = [
    (1, 8, 8, 512, 512, 64, True, True),
    (2, 8, 8, 256, 256, 256, False, True),
    (4, 16, 16, 4096, 4096, 64, False, True),
    (4, 16, 16, 4096, 4096, 128, True, True),
    (4, 8, 8, 4096, 4096, 256, False, True),
    (8, 16, 2, 1, 16384, 256, False, True),
    (4, 16, 16, 512, 512, 128, True, False),
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


if __name__ == "__main__":
    unittest.main()
