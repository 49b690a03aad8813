"""Cubins by instance: what a wheel carries, else compiled once from kernels/ into the user's cache. Loaded once per device.

$WARPSMITH_CUBINS names a folder that is looked into first. The cache's key is the hash of every source file and define.
"""
import hashlib
import os
import threading
from pathlib import Path

from . import _driver

try:   # a wheel carries most instances
    from .._native import kernel as _embedded
except ImportError:
    _embedded = None

ENTRIES = {"decode": "attention_decode", "tiny": "attention_tiny", "split": "attention_split", "forward": "attention_forward", "forward_f16": "attention_forward_f16", "forward_e4m3": "attention_forward_e4m3", "ragged": "attention_ragged", "portable": "attention_portable", "pack": "attention_pack", "transpose": "attention_transpose"}
IN_E4M3 = ("sm_89", "sm_100", "sm_120")   # of the portable kernel's targets: products are, which elsewhere are of f16
_lock = threading.Lock()
_loaded = {}


def source_folder():
    """kernels/attention/hopper of the checkout, or the copy in the wheel."""
    here = Path(__file__).resolve().parent
    for folder in (here / "hopper", here.parents[2] / "kernels" / "attention" / "hopper"):
        if (folder / "params.cuh").exists():
            return folder
    raise _driver.CudaError("the kernels' sources are missing from this installation")


def portable_target(capability):
    """What the portable kernel, and what quantises, are compiled for: Ampere's, Ada's and Blackwell's own code, PTX elsewhere, which the driver compiles for the card that is there."""
    return "sm_89" if capability == (8, 9) else {8: "sm_80", 10: "sm_100", 12: "sm_120"}.get(capability[0], "compute_80")


def target(choice, device=None):
    """What an instance is compiled for, on a device."""
    if ("WS_E4M3", 1) in choice.defines:   # Ada's products on a newer card, for tests
        return "compute_89"
    capability = None if device is None else torch_capability(device)
    if choice.file == "portable":
        return "compute_80" if device is None else portable_target(capability)
    if choice.file in ("quantise", "pack") and capability not in (None, (9, 0)):
        return portable_target(capability)
    return "sm_90a"


def torch_capability(device):
    """(major, minor) of a device; this module does without torch otherwise."""
    import torch
    return torch.cuda.get_device_capability(device)


def cubin(choice, device=None):
    """The instance's machine code, or its PTX."""
    name, arch = choice.name, target(choice, device)
    folder = os.environ.get("WARPSMITH_CUBINS")
    if folder and (Path(folder) / f"{name}.cubin").exists():
        return (Path(folder) / f"{name}.cubin").read_bytes()
    if _embedded is not None:
        code = _embedded(arch, name)
        if code is not None:
            return code
    src = source_folder()
    digest = hashlib.sha256(repr((name, choice.defines, arch)).encode())
    for f in sorted(src.iterdir()):
        digest.update(f.name.encode() + f.read_bytes())
    cache = Path(os.environ.get("WARPSMITH_CACHE", Path.home() / ".cache" / "warpsmith")) / "attention"
    path = cache / f"{name}-{digest.hexdigest()[:16]}.cubin"
    if not path.exists():
        code = _driver.compile_cubin((src / f"{choice.file}.cu").read_text(), f"{choice.file}.cu", src, choice.defines, arch)
        cache.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        temporary.write_bytes(code)
        temporary.replace(path)   # appears whole or not at all
    return path.read_bytes()


def kernel(choice, device, entry=None):
    """The loaded kernel of an instance on a device (whose context is current). `entry` names one of several in its file."""
    entry = entry or ENTRIES[choice.file]
    arch = target(choice, device)
    key = (choice.name, arch, entry, choice.shared_bytes, device)
    found = _loaded.get(key)
    if found is None:
        with _lock:
            found = _loaded.get(key)
            if found is None:
                with _driver.relaxed_capture():   # a first call inside of a graph's capture loads its code too
                    found = _loaded[key] = _driver.Kernel(cubin(choice, device), entry, choice.shared_bytes, dependent=arch == "sm_90a")   # others wait for no earlier launch
    return found
