"""The choice of a kernel, as rows. Needs neither torch nor a GPU."""
import importlib.util
import pathlib
import subprocess
import sys
import unittest

_path = pathlib.Path(__file__).resolve().parents[1] / "warpsmith" / "attention" / "_heuristic.py"
_spec = importlib.util.spec_from_file_location("_heuristic", _path)
h = importlib.util.module_from_spec(_spec)
sys.modules["_heuristic"] = h
_spec.loader.exec_module(h)

# B, Hq, Hkv, Sq, Sk, D, causal, scales of the whole head -> file
ROWS = [
    ((1, 8, 8, 512, 512, 64, False, True), "tiny"),
    ((2, 8, 8, 256, 256, 64, True, True), "tiny"),
    ((1, 8, 8, 512, 512, 128, False, True), "tiny"),
    ((2, 8, 8, 2048, 2048, 64, False, True), "forward_f16"),
    ((2, 8, 8, 2048, 2048, 64, True, True), "forward_f16"),
    ((2, 8, 8, 2048, 2048, 64, False, True, False, True), "forward"),   # with log-sum-exp
    ((2, 8, 8, 2048, 2048, 64, False, False), "forward"),
    ((2, 8, 8, 2048, 2048, 64, True, True, True), "forward_f16"),
    ((2, 8, 8, 2048, 2048, 128, False, True), "forward"),
    ((1, 8, 8, 512, 512, 64, False, True, False, True), "tiny"),
    ((8, 64, 2, 1, 16384, 64, False, True), "split"),
    ((4, 16, 16, 4096, 4096, 128, True, True), "forward"),
    ((1, 8, 8, 16384, 16384, 256, False, True), "forward"),
    ((1, 32, 8, 1, 131072, 128, False, True), "decode"),
    ((16, 32, 8, 4, 8192, 128, True, False), "decode"),
    ((8, 64, 2, 1, 16384, 128, False, True), "split"),     # 32 packed rows
    ((4, 16, 16, 4096, 4096, 128, False, False), "forward"),  # scales by block of tokens
    ((1, 8, 8, 512, 512, 64, False, False), "split"),
    ((4, 16, 16, 4096, 4096, 128, False, True, True), "forward"),
]


class Import(unittest.TestCase):
    def test_without_torch_it_says_what_is_missing(self):
        package = str(_path.parents[2])
        said = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {package!r}); import warpsmith; import warpsmith.attention"],
                              capture_output=True, text=True)
        self.assertEqual(said.returncode, 1)
        self.assertIn("ImportError: warpsmith.attention works on PyTorch's tensors", said.stderr)


class Choice(unittest.TestCase):
    def test_rows(self):
        for shape, file in ROWS:
            with self.subTest(shape=shape):
                self.assertEqual(h.choose(h.Shape(*shape)).file, file)

    def test_scales_by_block_and_packed_values_change_the_instance_alone(self):
        for D in (64, 128, 256):
            for causal in (False, True):
                of = lambda **named: h.choose(h.Shape(4, 16, 16, 4096, 4096, D, causal, lse=True, **named))
                plain, blocks, packed = of(), of(plain=False), of(packed=True)
                rest = lambda c, *more: [d for d in c.defines if d[0] not in ("WS_BLOCKS", "WS_PACKED", *more)]
                self.assertEqual([d for d in blocks.defines if d[0] in ("WS_BLOCKS", "WS_PACKED")], [("WS_BLOCKS", 1)])
                self.assertEqual([d for d in packed.defines if d[0] in ("WS_BLOCKS", "WS_PACKED")], [("WS_PACKED", 1)])
                self.assertEqual(rest(blocks), rest(plain))
                self.assertEqual(rest(packed, "WS_TURNS", "WS_WIDE"), rest(plain, "WS_TURNS", "WS_WIDE"))
                self.assertEqual((plain.grid, plain.row_tiles, plain.section), (packed.grid, packed.row_tiles, packed.section))
                self.assertLessEqual(packed.shared_bytes, 232448)

    def test_the_log_sum_exp_changes_the_kernel_at_64_dimensions_alone(self):
        """Weights that are linear between powers of two give right outputs, and wrong log-sum-exps."""
        for D in (64, 128, 256):
            for Sq in (1, 40, 300, 2048, 5000):
                for causal in (False, True):
                    for plain, packed in ((True, False), (False, False), (True, True)):
                        without, with_lse = (h.choose(h.Shape(2, 16, 8, Sq, 4096, D, causal, plain, packed, lse)) for lse in (False, True))
                        with self.subTest(D=D, Sq=Sq, causal=causal, plain=plain, packed=packed):
                            self.assertNotEqual(with_lse.file, "forward_f16")
                            if without != with_lse:
                                self.assertEqual((D, plain, without.file, with_lse.file), (64, True, "forward_f16", "forward"))
                                self.assertEqual(("WS_PACKED", 1) in without.defines, packed)
                            self.assertEqual(without.file == "forward_f16", D == 64 and plain and with_lse.file == "forward")

    def test_two_or_four_consumers_at_64_dimensions(self):
        """Whichever leaves the busiest SM less to do, a tile of keys costing two 1,342 and four 2,055 cycles; causal row tiles differ in length and are shared out."""
        # B, H, Sq, causal, SMs -> consumers, CTAs, row tiles
        rows = [((1, 132, 128, False, 132), (2, 132, 1)), ((1, 132, 129, False, 132), (4, 132, 1)), ((1, 132, 256, False, 132), (4, 132, 1)), ((1, 132, 257, False, 132), (2, 132, 3)),
                ((1, 132, 385, False, 132), (4, 132, 2)), ((4, 16, 4096, False, 132), (4, 132, 16)), ((2, 8, 2048, False, 132), (4, 128, 8)), ((1, 8, 2048, False, 132), (2, 128, 16)),
                ((2, 8, 2048, True, 132), (2, 132, 16)), ((2, 16, 1024, True, 132), (2, 132, 8)), ((8, 16, 512, True, 132), (4, 132, 2)), ((4, 16, 4096, True, 132), (4, 132, 16)),
                ((3, 20, 1536, True, 132), (4, 132, 6)), ((2, 8, 2048, True, 32), (4, 32, 8))]
        for (B, H, Sq, causal, sms), want in rows:
            c = h.choose_forward_f16(h.Shape(B, H, H, Sq, Sq, 64, causal), sms=sms)
            with self.subTest(B=B, H=H, Sq=Sq, causal=causal, sms=sms):
                self.assertEqual((dict(c.defines)["WS_WGS"], c.grid[0], c.row_tiles), want)
                self.assertEqual(c.block, 128 * (want[0] + 1))

    def test_memory_and_names_of_the_kernel_with_weights_in_f16(self):
        for wgs, shared in ((2, 134144), (4, 150528)):
            for causal in (False, True):
                s = h.Shape(2, 8, 8, 3000, 3000, 64, causal)
                c, traced = h.choose_forward_f16(s, wgs), h.choose_forward_f16(s, wgs, trace=1)
                self.assertEqual((c.name, c.shared_bytes, c.boxes, c.partial_floats), (f"forward_f16_d64_wgs{wgs}_causal{int(causal)}", shared, (64, 128), 0))
                self.assertLessEqual(c.shared_bytes, 232448)
                self.assertEqual((traced.name, traced.partial_floats), (c.name + "_trace1", c.grid[0] * wgs * 8))
                self.assertEqual(c.section, h.choose_forward(s).section)
                packed = h.choose_forward_f16(h.Shape(2, 8, 8, 3000, 3000, 64, causal, packed=True), wgs)
                self.assertEqual((packed.name, packed.shared_bytes), (c.name + "_packed1", {2: 139648, 4: 156032}[wgs]))

    def test_packed_values_fit_where_the_kernel_that_takes_them_would_be_chosen(self):
        for shape, fits in (((1, 8, 8, 512, 512, 64, False), False), ((1, 32, 8, 1, 131072, 128, False), False), ((8, 64, 2, 1, 16384, 128, False), False),
                            ((2, 8, 8, 2048, 2048, 64, True), True), ((4, 16, 16, 4096, 4096, 128, True, False), True)):
            self.assertEqual(h.packed_fits(h.Shape(*shape)), fits, shape)

    def test_every_launch_is_possible(self):
        for D in (64, 128, 256):
            for B, Hq, Hkv in ((1, 1, 1), (3, 8, 2), (64, 32, 8)):
                for Sq in (1, 3, 65, 512, 5000):
                    for Sk in (1, 77, 512, 4096, 100000):
                        for plain, lse in ((True, False), (True, True), (False, False)):
                            c = h.choose(h.Shape(B, Hq, Hkv, Sq, Sk, D, Sq > 4, plain, lse=lse))
                            with self.subTest(c=c):
                                self.assertLessEqual(c.shared_bytes, 232448)
                                self.assertTrue(0 < c.block <= 1024 and all(0 < g < 2**31 for g in c.grid))
                                self.assertLess(max(c.grid[1:]), 65536)
                                if c.file == "decode":   # whole teams, and no more of them than units
                                    self.assertEqual(c.grid[0] % c.tiles_per_worker, 0)
                                    self.assertTrue(c.grid[0] // c.tiles_per_worker <= c.total_tiles and c.grid[0] <= h.SMS)
                                elif c.total_tiles:
                                    self.assertGreaterEqual(c.tiles_per_worker * c.grid[0] * (3 if c.file == "split" else 1), c.total_tiles)

    def test_the_table_for_rust_is_fresh(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
        import choices
        if not choices.TABLE.exists():
            self.skipTest("not a checkout")
        self.assertEqual(choices.TABLE.read_text(), choices.table(), "renew it: python3 python/tests/choices.py > crates/attention/tests/choices.tsv")


if __name__ == "__main__":
    unittest.main()
