"""A wheel from end to end: installed into an environment of its own, imported from there, its command line run, its types checked, its tests run.

    python3 python/tests/installed.py target/wheels/warpsmith-*.whl                             no GPU is needed
    python3 python/tests/installed.py target/wheels/warpsmith-*.whl --gpu --cases 200 ...       then gpu_attention.py with these options

Needs a Python with torch, which the environment takes over; nothing is fetched. mypy is used where there is one. Exit code 1 if anything fails.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import venv
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
MOST_CUBINS, MOST_WHEEL = 20 << 20, 48 << 20   # bytes

INSIDE = """
import warpsmith, warpsmith.attention as w, pathlib, sys
from warpsmith import _native
from warpsmith.attention import _kernels
assert pathlib.Path(warpsmith.__file__).is_relative_to(sys.prefix), warpsmith.__file__
names = _native.kernels()
targets = {n.split("/")[0] for n in names}
assert targets == {"sm_90a", "sm_120", "sm_100", "sm_89", "sm_80", "compute_80"}, targets
sys.path.insert(0, sys.argv[1])
import walk
from warpsmith.attention import _heuristic
asked = walk.asked(_heuristic)
missing = ["/".join(i) for i in asked if "/".join(i) not in set(names)]
assert not missing, f"{len(missing)} of {len(asked)} instances that shapes ask for are not in the wheel: {missing[:5]}"
for name in names[::40]:
    code = _native.kernel(*name.split("/"))
    assert code[:4] == b"\\x7fELF" or name.startswith("compute_80") and b".target sm_80" in code[:2000], name
assert _native.kernel("sm_90a", "none_of_it") is None
import choices
print(choices.same_by(_native), "choices of the wheel are Python's own")
assert _kernels._embedded is not None and _kernels.source_folder().parent.parent.parent.is_relative_to(sys.prefix)
print(len(names), "kernels, among them all", len(asked), "that 20,000 shapes ask for; exported:", *w.__all__)
for name in w.__all__:
    assert getattr(w, name).__doc__, f"{name} has no docstring"
meta = __import__("importlib.metadata").metadata.distribution("warpsmith")
assert meta.metadata["License-Expression"] or meta.metadata["License"], "the metadata names no license"
licenses = {pathlib.Path(f).name for f in meta.files if "licenses" in str(f) or pathlib.Path(f).name.startswith("LICENSE")}
assert {"LICENSE-MIT", "LICENSE-APACHE"} <= licenses, f"the wheel's licences are {sorted(licenses)}"
"""

USER = '''
import torch
from warpsmith.attention import PackedKV, checked, decode_fp8, pack_kv, quantize_fp8, sdpa, sdpa_fp8, sdpa_fp8_packed, sdpa_fp8_varlen

def right(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
    (q8, qs), (k8, ks), (v8, vs) = (quantize_fp8(x) for x in (q, k, v))
    out: torch.Tensor = sdpa_fp8(q8, k8, v8, qs, ks, vs, causal=True)
    both, lse = sdpa_fp8(q8, k8, v8, qs, ks, vs, return_lse=True, softmax_scale=0.5)
    kv: PackedKV = pack_kv(k, v, scales="block")
    packed = sdpa_fp8_packed(q8, kv, qs, out_dtype=torch.float16)
    o, l = decode_fp8(q8, k8, v8, qs, ks, vs, lens, page_table=lens, return_lse=True)
    with checked():
        sdpa_fp8(q8, k8, v8, qs, ks, vs)
    r = sdpa_fp8_varlen(q8, k8, v8, qs, ks, vs, lens, lens, 3, 4)
    return out + both + lse + packed + o + l + r + sdpa(q, k, v, is_causal=True)

def wrong(q: torch.Tensor) -> None:
    sdpa_fp8(q, q, q, q, q, q, mode="quick")   # E
    quantize_fp8(q, "row")                     # E
    sdpa_fp8(q, q, q)                          # E
    pack_kv(q, q, "head")                      # E
    sdpa_fp8(q, q, q, q, q, q).append(1)       # E
'''


def run(command, **keywords):
    print("$", *[str(c) if len(str(c)) < 100 else "..." for c in command], flush=True)
    return subprocess.run([str(c) for c in command], check=True, **keywords)


def types(python, folder):
    """mypy takes a user's right lines as they are, and finds each wrong one."""
    if subprocess.run([sys.executable, "-c", "import mypy"], capture_output=True).returncode:
        print("mypy is not installed: types are not checked")
        return
    path = folder / "user.py"
    path.write_text(USER)
    said = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--cache-dir", str(folder / "mypy"), str(path)],
                          capture_output=True, text=True, cwd=folder)
    found = {int(line.split(":")[1]) for line in said.stdout.splitlines() if line.startswith("user.py:") and " error: " in line}
    wanted = {i for i, line in enumerate(USER.splitlines(), 1) if line.endswith("# E")}
    assert found == wanted, f"mypy found errors in lines {sorted(found)}, not {sorted(wanted)}:\n{said.stdout}{said.stderr}"
    print(f"types: {len(wanted)} mistakes found, nothing else")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("wheel", type=pathlib.Path)
    ap.add_argument("--gpu", action="store_true", help="then gpu_attention.py, with all options that follow")
    a, rest = ap.parse_known_args()
    if rest and not a.gpu:
        ap.error(f"what is {rest[0]}?")
    size = a.wheel.stat().st_size
    assert size <= MOST_WHEEL, f"the wheel has {size >> 20} MB"
    assert "-abi3-" in a.wheel.name, a.wheel.name
    with zipfile.ZipFile(a.wheel) as z:
        held = z.namelist()
        strange = [n for n in held if "gate_" in n or n.endswith((".pyc", ".toml", ".rs"))]
        assert not strange, f"the wheel holds what nobody needs there: {strange[:5]}"
        assert "warpsmith/py.typed" in held and "warpsmith/attention/__init__.pyi" in held and any(n.endswith("hopper/portable_e4m3.cuh") for n in held)
        native = next(i for i in z.infolist() if "/_native" in i.filename)
        assert native.file_size <= MOST_CUBINS + (2 << 20), f"_native has {native.file_size >> 20} MB"
    print(f"{a.wheel.name}: {size / 2**20:.1f} MB, {len(held)} files, _native {native.file_size / 2**20:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        venv.create(folder / "env", system_site_packages=True, with_pip=False, symlinks=True)
        bin_folder = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        python = bin_folder / "python"
        site = next((folder / "env" / "lib").glob("python*/site-packages"))
        # The packages of this Python, which may be an environment itself: a new one sees only what is below that.
        (site / "outer.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n")
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "WARPSMITH_CUBINS")}
        env["WARPSMITH_CACHE"] = str(folder / "cache")
        run([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", a.wheel.resolve()], env=env)
        run([python, "-c", INSIDE, HERE], cwd=folder, env=env)
        said = run([bin_folder / "warpsmith", "--version"], cwd=folder, env=env, capture_output=True, text=True).stdout
        assert said.startswith("warpsmith "), said
        checked = subprocess.run([sys.executable, "-m", "pip", "--python", python, "check"], env=env, capture_output=True, text=True).stdout
        assert "warpsmith" not in checked, checked   # what others break is theirs
        run([bin_folder / "warpsmith", "list"], cwd=folder, env=env, stdout=subprocess.DEVNULL)
        print(said.strip())
        types(python, folder)
        run([python, HERE / "test_api.py"], cwd=folder, env={**env, "WARPSMITH_INSTALLED": "1", "CUDA_VISIBLE_DEVICES": ""})   # it is about machines without a GPU
        if a.gpu:
            run([python, HERE / "gpu_attention.py", *rest], cwd=folder, env=env)
    print("the wheel is right")


if __name__ == "__main__":
    try:
        main()
    except (AssertionError, subprocess.CalledProcessError) as e:
        sys.exit(f"FAILED: {e}")
