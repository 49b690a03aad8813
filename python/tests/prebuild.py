"""Compiles instances in processes of their own, into the cache that the package looks into. Needs NVRTC; neither torch nor a GPU."""
import concurrent.futures
import multiprocessing
import pathlib
import sys
import types


def compile_one(instance):
    """(file, defines) to its place in the cache."""
    folder = pathlib.Path(__file__).resolve().parents[1] / "warpsmith" / "attention"
    if "attention_prebuild" not in sys.modules:   # the package's own front imports torch
        package = types.ModuleType("attention_prebuild")
        package.__path__ = [str(folder)]
        sys.modules["attention_prebuild"] = package
    from attention_prebuild import _heuristic, _kernels
    return len(_kernels.cubin(_heuristic.Choice(instance[0], instance[1], (), 0, 0)))


def compile_all(instances, jobs):
    """The number of bytes of all."""
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        return sum(pool.map(compile_one, instances))
