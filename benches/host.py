"""Host time of calls whose shapes or lengths are new, as serving makes them: choices by the wheel's `_native`, and by Python, as in a checkout.

    PYTHONPATH=... python3 benches/host.py [--calls N] [--rounds N] [--out FILE]        # an installed wheel, a Hopper card

Random batches, 32 heads over 8 of K and V at D 128, causal: sequences of one token each, one prompt beside them, prompts (`sdpa_fp8_varlen`), and one prompt alone (`sdpa_fp8`). Each call is made once; microseconds from
its start to its return, the median of all but the first third (which load kernels), in rounds that alternate.
"""
import argparse
import json
import random
import statistics
import time
from pathlib import Path

import torch
import warpsmith.attention as w

DEV = "cuda"


def codes(*shape):
    return torch.randn(*shape, device=DEV).to(torch.float8_e4m3fn)


def varlen(r, kind):
    """One call of sequences one behind another."""
    B, one = r.randint(8, 48), torch.ones((), device=DEV)
    nq = [1] * B if kind == "tokens" else [r.randint(500, 4000)] + [1] * (B - 1) if kind == "a prompt and tokens" else [r.randint(300, 1500) for _ in range(min(B, 8))]
    nk = nq if kind == "prompts" else [max(n, r.randint(500, 4000)) for n in nq]
    q, k, v = codes(sum(nq), 32, 128), codes(sum(nk), 8, 128), codes(sum(nk), 8, 128)
    begins = lambda n: torch.tensor([sum(n[:i]) for i in range(len(n) + 1)], dtype=torch.int32, device=DEV)
    given = q, k, v, one, one, one, begins(nq), begins(nk), max(nq), max(nk)
    return lambda: w.sdpa_fp8_varlen(*given, causal=True)


def dense(r, _):
    """One call of one prompt."""
    n, one = r.randint(500, 6000), torch.ones((), device=DEV)
    q, k, v = (codes(1, h, n, 128) for h in (32, 8, 8))
    return lambda: w.sdpa_fp8(q, k, v, one, one, one, causal=True)


KINDS = {"tokens": varlen, "a prompt and tokens": varlen, "prompts": varlen, "one prompt": dense}


def median_us(kind, seed, count):
    r = random.Random(seed)
    calls, found = [KINDS[kind](r, kind) for _ in range(count)], []
    torch.cuda.synchronize()
    for call in calls:
        begin = time.perf_counter()
        call()
        found.append((time.perf_counter() - begin) * 1e6)
        torch.cuda.synchronize()
    return round(statistics.median(found[count // 3:]), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    if w._chosen.native is None:
        raise SystemExit("this installation has no _native: install a wheel (cargo xtask wheel)")
    rows = []
    for kind in KINDS:
        for n in range(a.rounds):
            with w._chosen.by_python():
                python = median_us(kind, 2 * n, a.calls)
            rows.append({"kind": kind, "round": n, "python_us": python, "wheel_us": median_us(kind, 2 * n + 1, a.calls)})
            print(json.dumps(rows[-1]), flush=True)
    if a.out:
        a.out.write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "calls": a.calls, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
