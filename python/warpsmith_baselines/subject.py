"""A baseline resident in several copies, and the four ways in which it is timed: those of the device's worker (docs/worker-protocol.md).

Before each replay, outside of what is timed, the inputs of every copy are copied anew and the outputs filled with a byte drawn for it; then
twice L2's size is written and read (`graph_cold`, `event`), or the very calls are made once unrecorded (`graph_warm`). A short spin on the
device follows, so that the host, slower in Python, is ahead when the first event passes: what is between the events is the device's.
It judges nothing: samples and outputs go back as they are.
"""
import contextlib
import ctypes
import importlib.metadata
import os
import platform
import time
import traceback
import warnings

from warpsmith_baselines import nvml, wire
from warpsmith_baselines.wire import Absent, BadRequest, Failed

try:
    import torch
    from warpsmith_baselines import peers
    NO_TORCH = None
except ModuleNotFoundError as e:
    NO_TORCH = "PyTorch is not installed for the Python that was found (%s; --python names another): python3 -m pip install torch" % platform.python_version()
except Exception as e:
    NO_TORCH = "PyTorch is installed and does not load (%s)" % (str(e).strip() or repr(e)).splitlines()[-1][:200]

MAX_COPIES, MAX_REPLAYS = 4096, 1 << 20
SPIN = 400_000          # cycles, 0.2 ms at 1.98 GHz: longer than Python needs to ask for a replay
SHOWN = 300


def last_line(e):
    return ((str(e).strip() or repr(e)).splitlines() or ["?"])[-1][:SHOWN]


class Engine:
    def __init__(self, uuid, ordinal):
        self.why = NO_TORCH
        if self.why is None and not torch.cuda.is_available():
            self.why = "PyTorch %s sees no CUDA device" % torch.__version__
        if self.why is None:
            at = self.ordinal(uuid, ordinal)
            if at is None:
                self.why = "PyTorch does not see the device %s" % uuid
                return
            torch.cuda.set_device(at)
            self.properties = torch.cuda.get_device_properties(at)
            self.uuid = uuid or "GPU-%s" % self.properties.uuid
            self.nvml = nvml.Nvml(self.uuid)
            self.stream = torch.cuda.Stream()
            self.l2 = getattr(self.properties, "L2_cache_size", 0) or 64 << 20
            # Twice the cache, in words, written and read before what is to be cold.
            self.flusher = torch.zeros(2 * self.l2 // 4, device="cuda", dtype=torch.int32)

    @staticmethod
    def ordinal(uuid, ordinal):
        count = torch.cuda.device_count()
        if not uuid:
            return ordinal if ordinal < count else None
        for i in range(count):
            if str(getattr(torch.cuda.get_device_properties(i), "uuid", "")) in uuid:
                return i
        return None

    def describe(self):
        versions = {"python": platform.python_version()}
        for name in ("torch", "triton", "fa3-fwd", "nvidia-cudnn-frontend", "flash-attn", "sageattention"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
        if NO_TORCH is None:
            versions.update({"torch": torch.__version__, "cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())})
        if self.why is not None:
            return {"versions": versions, "unusable": self.why}
        return {"versions": versions, "device": {"name": self.properties.name, "uuid": self.uuid, "l2_bytes": self.l2}}

    def prepare(self, request, bases):
        if self.why is not None:
            raise Absent(self.why)
        with torch.cuda.stream(self.stream):
            return guarded(request["baseline"], lambda: Subject(self, request, bases))

    def flush(self):
        self.flusher.fill_(1)
        self.flusher.sum()


def guarded(name, do, taken=True):
    """`do()`, with what PyTorch and libraries raise made into words. A problem that is not taken shows at the first calls."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return _guarded(name, do, taken, said)


def _guarded(name, do, taken, said):
    try:
        return do()
    except (Absent, Failed, BadRequest):
        raise
    except torch.cuda.OutOfMemoryError as e:
        raise Absent("the device's memory does not suffice for it") from e
    except Exception as e:
        traceback.print_exc()
        try:
            torch.cuda.synchronize()
        except Exception as broken:
            raise Failed("%s broke the device's context: %s" % (name, last_line(broken)), last=True) from e
        if taken:
            # SDPA gives its reasons as warnings, among them that the backends nobody asked for are off.
            reasons = [" ".join(str(w.message).split("(Triggered")[0].split()) for w in said if issubclass(w.category, UserWarning)]
            reasons = [r for r in reasons if "disabled" not in r and not r.endswith(":")]
            raise Absent("it does not take this problem: %s" % "; ".join([last_line(e), *reasons[:3]])[:3 * SHOWN]) from e
        raise Failed(last_line(e)) from e


class Copy:
    """One call's own memory."""

    def __init__(self, x):
        self.x = [y.clone(memory_format=torch.preserve_format) for y in x]

    def refresh(self, x):
        for mine, base in zip(self.x, x):
            mine.copy_(base)


class Subject:
    def __init__(self, engine, request, bases):
        self.engine, self.name = engine, request["baseline"]
        problem = {"causal": bool(request.get("causal")), "scalars": request.get("scalars", {})}
        self.peer = peers.peer(self.name, problem)
        with self.peer.around(), torch.inference_mode():
            self.bases = [self.peer.arrange({n: on_device(t) for n, t in base.items()}) for base in bases]
            if not self.bases:
                raise BadRequest("no inputs are given")
            for _ in range(3):
                out = self.peer.call(self.bases[0])
            torch.cuda.synchronize()
            self.copy_bytes = sum(y.nbytes for y in self.bases[0]) + out.nbytes
            wanted = max(1, min(int(request.get("copies", 1)), MAX_COPIES))
            count = max(1, min(wanted, int(request.get("copies_bytes", 1 << 30)) // max(1, self.copy_bytes)))
            self.copies = [Copy(self.bases[0]) for _ in range(count)]
            self.graphs = {}
            for copy in self.copies:
                self.peer.call(copy.x)
            torch.cuda.synchronize()

    def describe(self):
        found = {"copies": len(self.copies), "copy_bytes": self.copy_bytes, "bases": len(self.bases)}
        return {**found, "detail": self.peer.detail} if self.peer.detail else found

    def close(self):
        self.graphs, self.copies, self.bases, self.peer = {}, [], [], None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def graph(self, calls, copies):
        """Calls in one graph, going round the first copies; and the outputs, one for each call."""
        key = (calls, copies)
        if key not in self.graphs:
            self.graphs.clear()
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, stream=self.engine.stream):
                outs = [self.peer.call(self.copies[i % copies].x) for i in range(calls)]
            self.graphs[key] = (g, outs)
        return self.graphs[key]

    def output(self, base):
        def do():
            with torch.cuda.stream(self.engine.stream), self.peer.around(), torch.inference_mode():
                x = self.bases[base]
                return self.contents(self.peer.call(x), x)
        if not 0 <= base < len(self.bases):
            raise BadRequest("there is no base %d" % base)
        data, shape = guarded(self.name, do, taken=False)
        return {"reply": "output", "dtype": "f32", "shape": shape, "sha256": wire.sha256(data)}, (data,)

    def contents(self, out, x):
        values = self.peer.values(out, x).contiguous().cpu()
        return ctypes.string_at(values.data_ptr(), values.nbytes), list(values.shape)

    def time(self, request):
        def do():
            with torch.cuda.stream(self.engine.stream), self.peer.around(), torch.inference_mode():
                return Timing(self, request).run()
        return guarded(self.name, do, taken=False)


class Timing:
    """One request's replays."""

    def __init__(self, subject, request):
        self.s, self.e, self.r = subject, subject.engine, request
        self.method = request["method"]
        self.replays, self.warmup = int(request["replays"]), int(request.get("warmup", 0))
        if self.replays < 1 or self.replays + self.warmup > MAX_REPLAYS:
            raise BadRequest("from 1 to %d replays" % MAX_REPLAYS)
        have = len(subject.copies)
        self.copies, self.calls = have, int(request.get("calls", 0)) or have
        if self.method == "graph_warm":
            # As many as lie in half of L2 together, beside what else a call touches.
            self.copies = max(1, min(have, self.e.l2 // 2 // max(1, subject.copy_bytes)))
        elif self.method == "graph_cold":
            self.calls = min(self.calls, have)
        elif self.method == "event":
            self.calls = 1
        elif self.method != "eager":
            raise BadRequest("there is no method %s" % self.method)
        self.copies = min(self.copies, self.calls)
        self.wanted = {}
        for replay, copy in request.get("sample", ()):
            self.wanted.setdefault(int(replay), []).append(int(copy))
        self.sampled, self.data, self.changed = [], [], []

    def run(self):
        read = self.e.nvml.read
        conditions, samples = {"before": read()}, []
        for i in range(-self.warmup, self.replays):
            during = (lambda: conditions.update(during=read())) if i == self.replays // 2 else (lambda: None)
            us = self.replay(max(i, 0), i in self.wanted, during)
            if i >= 0:
                samples.append(us)
        conditions["after"] = read()
        answer = {"reply": "timed", "samples": samples, "calls": self.calls, "copies": self.copies, "conditions": conditions}
        if self.sampled:
            answer["sampled"] = self.sampled
        if self.changed:
            answer["changed"] = self.changed
        return answer, self.data

    def replay(self, number, sampled, during):
        used = range(self.copies) if self.method != "event" else [number % len(self.s.copies)]
        bases = {c: wire.base_at(self.r["bases"], number, c, len(self.s.bases)) for c in used}
        for c in used:
            self.s.copies[c].refresh(self.s.bases[bases[c]])
        if self.method == "eager":
            us, outs = self.eager(during)
        elif self.method == "event":
            us, outs = self.event(self.s.copies[used[0]], during)
            outs = {used[0]: outs}
        else:
            us, outs = self.graph(during)
        if sampled:
            for c in self.wanted[number]:
                if c in bases and c in outs:
                    self.take(number, c, bases[c], outs[c])
        return us

    def take(self, number, c, base, out):
        x = self.s.copies[c].x
        if any(not torch.equal(raw(a), raw(b)) for a, b in zip(x, self.s.bases[base])):
            self.changed.append([number, c])
        data, shape = self.s.contents(out, x)
        self.sampled.append({"replay": number, "copy": c, "base": base, "dtype": "f32", "shape": shape, "sha256": wire.sha256(data)})
        if data not in self.data:
            self.data.append(data)

    def between(self, do, during):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        out = do()
        b.record()
        during()
        b.synchronize()
        return a.elapsed_time(b) * 1e3, out

    def graph(self, during):
        g, outs = self.s.graph(self.calls, self.copies)
        byte = os.urandom(1)[0]
        for out in outs:
            raw(out).fill_(byte)
        if self.method == "graph_cold":
            self.e.flush()
            torch.cuda._sleep(SPIN)
        else:
            torch.cuda._sleep(SPIN)
            g.replay()
        us, _ = self.between(g.replay, during)
        return us / self.calls, {i % self.copies: out for i, out in enumerate(outs)}

    def event(self, copy, during):
        self.e.flush()
        torch.cuda._sleep(SPIN)
        return self.between(lambda: self.s.peer.call(copy.x), during)

    def eager(self, during):
        torch.cuda.synchronize()
        call, copies, outs = self.s.peer.call, [c.x for c in self.s.copies[:self.copies]], {}
        start = time.perf_counter()
        for i in range(self.calls):
            outs[i % self.copies] = call(copies[i % self.copies])
        torch.cuda.synchronize()
        us = (time.perf_counter() - start) * 1e6 / self.calls
        during()
        return us, outs


def raw(x):
    """A tensor's memory as bytes, whatever its type and order."""
    return x.view(torch.uint8) if x.dtype.itemsize == 1 else x.view(torch.int16) if x.dtype.itemsize == 2 else x.view(torch.int32) if x.dtype.itemsize == 4 else x.view(torch.int64)


def on_device(tensor):
    dtype, shape, data = tensor
    if dtype not in peers.DTYPES:
        raise Absent("PyTorch has no type %s" % dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to("cuda").view(peers.DTYPES[dtype]).reshape(shape)

