"""A stand-in for PyTorch and its packages: the whole protocol without a GPU. Its times are made up and say so by the device's name.

It computes attention in plain Python for small problems (zeros for larger ones) and does what it is told to: be absent, crash, hang, fail.
"""
import math
import os
import struct
import time

from warpsmith_baselines import wire
from warpsmith_baselines.wire import Absent, Failed

SMALL = 1 << 20         # multiply-adds


class Engine:
    """`told`: {"us": {NAME: time}, "absent": {NAME: why}, "ends": {NAME: "crash" | "hang" | "fail" | "lost"}}; ends come when it is timed."""

    def __init__(self, told):
        self.told = told

    def describe(self):
        return {"versions": {"fake": "1"}, "device": {"name": "Fake device", "uuid": "GPU-fake", "l2_bytes": 1 << 20}}

    def prepare(self, request, bases):
        name = request["baseline"]
        if name in self.told.get("absent", {}):
            raise Absent(self.told["absent"][name])
        return Subject(self.told, name, request, bases)


class Subject:
    def __init__(self, told, name, request, bases):
        self.told, self.name, self.bases, self.request = told, name, bases, request
        self.copies = max(1, int(request.get("copies", 1)))
        self.known = {}

    def describe(self):
        return {"copies": self.copies, "copy_bytes": sum(len(t[2]) for t in self.bases[0].values()), "bases": len(self.bases)}

    def close(self):
        pass

    def time(self, request):
        end = self.told.get("ends", {}).get(self.name)
        if end == "crash":
            os.abort()
        if end == "hang":
            time.sleep(3600)
        if end in ("fail", "lost"):
            raise Failed("CUDA error: an illegal memory access was encountered", last=end == "lost")
        us = float(self.told.get("us", {}).get(self.name, 10.0))
        samples = [us * (1 + 0.01 * ((7 * i) % 5 - 2)) for i in range(int(request["replays"]))]
        sampled, data = [], []
        for replay, copy in request.get("sample", ()):
            base = wire.base_at(request["bases"], replay, copy, len(self.bases))
            values, shape = self.values(base)
            sampled.append({"replay": replay, "copy": copy, "base": base, "dtype": "f32", "shape": shape, "sha256": wire.sha256(values)})
            if values not in data:
                data.append(values)
        reading = {"sm_mhz": 1000, "memory_mhz": 2000}
        answer = {"reply": "timed", "samples": samples, "calls": self.copies, "copies": self.copies, "conditions": {"before": reading, "after": reading}}
        return ({**answer, "sampled": sampled} if sampled else answer), data

    def output(self, base):
        values, shape = self.values(base)
        return {"reply": "output", "dtype": "f32", "shape": shape, "sha256": wire.sha256(values)}, (values,)

    def values(self, base):
        if base not in self.known:
            self.known[base] = self.compute(base)
        return self.known[base]

    def compute(self, base):
        t = self.bases[base]
        if "q" not in t:
            shape = t["x"][1]
            return struct.pack("<%df" % math.prod(shape), *rms_norm(numbers(t["x"]), numbers(t["weight"]), self.request["scalars"]["eps"])), shape
        shape = t["q"][1]
        return struct.pack("<%df" % math.prod(shape), *attention(t, self.request)), shape


def rms_norm(x, weight, eps):
    n = len(weight)
    for row in range(len(x) // n):
        part = x[row * n:row * n + n]
        scale = 1 / math.sqrt(sum(y * y for y in part) / n + eps)
        yield from (y * scale * w for y, w in zip(part, weight))


def attention(t, request):
    shape = t["q"][1]
    seqs, dim = shape[-2:]
    heads = math.prod(shape[:-2])
    if heads * seqs * seqs * dim > SMALL:
        return [0.0] * (heads * seqs * dim)
    q, k, v = (dequantised(t, name, heads, seqs * dim) for name in "qkv")
    scale, causal, out = request["scalars"]["softmax_scale"], request.get("causal"), []
    for h in range(heads):
        rows = [[x[h * seqs * dim + s * dim:h * seqs * dim + s * dim + dim] for s in range(seqs)] for x in (q, k, v)]
        for i, query in enumerate(rows[0]):
            seen = range(i + 1 if causal else seqs)
            logits = [scale * sum(a * b for a, b in zip(query, rows[1][j])) for j in seen]
            largest = max(logits)
            weights = [math.exp(x - largest) for x in logits]
            total = sum(weights)
            out += [sum(w * rows[2][j][d] for w, j in zip(weights, seen)) / total for d in range(dim)]
    return out


def dequantised(t, name, heads, each):
    values = numbers(t[name])
    if name + "_scale" not in t:
        return values
    scales = numbers(t[name + "_scale"])
    if len(scales) not in (1, heads):
        raise Absent("it takes one scale for each head, not for each block of keys: --scales head or tensor")
    return [x * scales[i // each if len(scales) > 1 else 0] for i, x in enumerate(values)]


def numbers(tensor):
    dtype, _, data = tensor
    if dtype == "e4m3":
        return [e4m3(b) for b in data]
    if dtype == "bf16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    word, size = {"f16": ("e", 2), "f32": ("f", 4), "f64": ("d", 8)}[dtype]
    return list(struct.unpack("<%d%s" % (len(data) // size, word), data))


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    size = mantissa / 512 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return math.nan if code & 127 == 127 else -size if code & 128 else size
