"""The reference of @NAME@ in f64: `python3 reference.py IN_DIR OUT_DIR`. Needs NumPy.

IN_DIR/workload.json says symbols, scalars, inputs and outputs; each tensor is one .npy file.
"""
import json
import sys
from pathlib import Path

import numpy as np


def compute(x: np.ndarray, y: np.ndarray, *, a: float) -> np.ndarray:
    return a * x + y


def main(in_dir: Path, out_dir: Path) -> None:
    header = json.loads((in_dir / "workload.json").read_text())
    inputs = {name: np.load(in_dir / array["file"]).astype(np.float64) for name, array in header["inputs"].items()}
    np.save(out_dir / header["outputs"]["out"]["file"], compute(**inputs, **header["scalars"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
