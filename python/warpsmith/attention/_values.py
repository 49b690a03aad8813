"""The opt-in look at values that live on the device: scales, lengths, pages. Knows tensors and errors, no kernels.

Calls do not wait for the device, so these values are not looked at by default. The kernels hold lengths and page numbers within the tensors
whatever they are, and a negative scale spoils its own head alone; one thing they take on trust is that no sequence of sdpa_fp8_varlen has more
than max_seqlen_k keys, as its scales by block end there. Within `checked()`, or with WARPSMITH_CHECK=1 in the
environment, every eager call waits for its arguments and says what is wrong with them. For the whole process; not while a graph is captured.
"""
import contextlib
import os
import threading

import torch

looked_at = 1 if os.environ.get("WARPSMITH_CHECK", "0") not in ("", "0") else 0   # how many want it
_lock = threading.Lock()


@contextlib.contextmanager
def checked():
    """Within it every call looks at values on the device too (scales, lengths, pages, what is quantised), waits for them, and raises ValueError for wrong ones.

    For finding mistakes, not for production: it holds for all threads of the process, and a call whose stream is being captured raises
    RuntimeError. WARPSMITH_CHECK=1 in the environment does the same for a whole run. Code inside torch.compile is not looked into.
    """
    global looked_at
    with _lock:
        looked_at += 1
    try:
        yield
    finally:
        with _lock:
            looked_at -= 1


def _there(x):
    """Whether x has values that can be looked at now."""
    if torch.compiler.is_compiling() or isinstance(x, torch._subclasses.FakeTensor) or x.is_meta:
        return False
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("values cannot be checked while a graph is captured: capture outside of warpsmith.attention.checked(), with WARPSMITH_CHECK unset")
    return True


def scales(name, s):
    """Scales are finite and not negative. 0 is one: the values are then 0."""
    if not _there(s):
        return
    wrong = ~((s >= 0) & (s < float("inf")))
    if bool(wrong.any()):
        at = tuple(wrong.nonzero()[0].tolist())
        raise ValueError(f"{name}{list(at) if at else ''} is {float(s[at])}: scales must be finite and not negative")


def finite(name, x):
    """What is to be quantised has no infinity, which would make its whole block's scale one, and no NaN."""
    if _there(x) and not bool(x.isfinite().all()):
        at = (~x.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"{name}{at} is {float(x[tuple(at)])}: what is quantised must be finite")


def boundaries(name, cu, total, most):
    """cu_seqlens rise from 0 or more to at most `total`, no sequence longer than `most`."""
    if not _there(cu):
        return
    at = cu.tolist()
    if at[0] < 0 or at[-1] > total:
        raise ValueError(f"{name} goes from {at[0]} to {at[-1]}, where there are tokens 0 to {total}")
    for i, (a, b) in enumerate(zip(at, at[1:])):
        if not 0 <= b - a <= most:
            raise ValueError(f"{name}[{i + 1}] is {b} after {a}: a sequence has 0 to max_seqlen = {most} tokens")


def lengths(used, most):
    """cache_seqlens fit the cache."""
    if not _there(used):
        return
    for i, n in enumerate(used.tolist()):
        if not 0 <= n <= most:
            raise ValueError(f"cache_seqlens[{i}] is {n}, where the cache holds 0 to {most} keys")


def pages(table, used, page_size, count):
    """The entries that a sequence uses name pages that there are."""
    if not _there(table):
        return
    for b, (row, n) in enumerate(zip(table.tolist(), used.tolist())):
        for i, page in enumerate(row[:-(-n // page_size)]):
            if not 0 <= page < count:
                raise ValueError(f"page_table[{b}, {i}] is {page}, where there are pages 0 to {count - 1}")
