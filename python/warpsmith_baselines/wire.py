"""Messages on a stream of bytes: one JSON object on a line, then the raw bytes of its blobs (docs/worker-protocol.md, framing)."""
import hashlib
import json

MAX_LINE = 4 << 20


class Broken(Exception):
    """What came is no message, or the stream ended within one."""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def send(out, message, blobs=()):
    """Writes a message with its blobs; `out` is a binary stream."""
    if blobs:
        message = {**message, "blobs": [{"sha256": sha256(b), "bytes": len(b)} for b in blobs]}
    out.write(json.dumps(message).encode() + b"\n")
    for b in blobs:
        out.write(b)
    out.flush()


def receive(source):
    """The next message and its blobs by hash; None at the end of the stream."""
    line = source.readline(MAX_LINE + 1)
    if not line:
        return None
    try:
        message = json.loads(line)
        heads = [(b["sha256"], int(b["bytes"])) for b in message.get("blobs", ())]
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Broken("a line that is no message: %r" % line[:80]) from e
    blobs = {}
    for sha, n in heads:
        data = source.read(n)
        if len(data) != n:
            raise Broken("the stream ended within a blob")
        if sha256(data) != sha:
            raise Broken("a blob of %d bytes has not the hash that was announced" % n)
        blobs[sha] = data
    return message, blobs


class Absent(Exception):
    """This baseline is not to be had here, or does not take this problem."""


class Failed(Exception):
    """It broke. `last`: the device's context is lost with it."""

    def __init__(self, why, last=False):
        super().__init__(why)
        self.last = last


class BadRequest(Exception):
    """The one who asks is at fault."""


def base_at(bases, replay, copy, count):
    """Which inputs a copy has in a replay: `Bases::at` of the device's worker, in Python."""
    n = max(count, 1)
    if "seed" in bases:
        return _mix((bases["seed"] ^ _mix((replay << 32 | copy) & _MASK)) & _MASK) % n
    rows = bases.get("table") or [[]]
    row = rows[replay % len(rows)] or [0]
    return row[copy % len(row)] % n


_MASK = (1 << 64) - 1


def _mix(x):
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK
    return x ^ x >> 31
