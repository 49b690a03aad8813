"""crates/attention/tests/choices.tsv: what the heuristic gives for many shapes, so that its two versions, in Python and in Rust, stay one.

    python3 python/tests/choices.py            # prints the table; > crates/attention/tests/choices.tsv renews it
"""
import importlib.util
import itertools
import pathlib
import sys

_here = pathlib.Path(__file__).resolve()
TABLE = _here.parents[2] / "crates" / "attention" / "tests" / "choices.tsv"


def _heuristic():
    spec = importlib.util.spec_from_file_location("_heuristic_of_choices", _here.parents[1] / "warpsmith" / "attention" / "_heuristic.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def table():
    """The text of the whole table."""
    h = _heuristic()
    lines = ["# batch heads_kv group seqlen_q seqlen_k head_dim causal plain packed sms | instance grid block shared tiles_per_unit tiles_per_worker total_tiles row_tiles section partial units boxes"]
    lengths = [(1, 8192), (1, 64), (4, 8192), (17, 3000), (100, 777), (512, 512), (256, 1000), (300, 100), (2048, 2048), (5000, 16384), (16384, 16384)]
    for D, (B, Hkv, g), (Sq, Sk), causal, (plain, packed), sms in itertools.product((64, 128, 256), ((1, 8, 1), (2, 2, 4), (64, 8, 4), (3, 1, 5)), lengths, (0, 1), ((1, 0), (0, 0), (1, 1)),
                                                                                         (132, 114)):
        if sms != 132 and (D, plain) != (128, 1):
            continue
        c = h.choose(h.Shape(B, Hkv * g, Hkv, Sq, Sk, D, bool(causal), bool(plain), bool(packed)), sms)
        values = [c.name, "x".join(map(str, c.grid)), c.block, c.shared_bytes, c.tiles_per_unit, c.tiles_per_worker, c.total_tiles, c.row_tiles, c.section,
                  int(c.partial_floats), c.units, "x".join(map(str, c.boxes)) or "-"]
        lines.append(" ".join(map(str, (B, Hkv, g, Sq, Sk, D, causal, plain, packed, sms))) + "\t" + " ".join(map(str, values)))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
