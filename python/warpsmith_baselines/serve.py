"""Reads requests, carries them out one after the other, and answers; ends with whoever asks, or at its deadline.

Three threads: one reads (the end of the input ends the process at once, even while a kernel hangs), one watches the deadline, the main one
works. The standard output belongs to the replies alone: what libraries print goes to the standard error.
"""
import os
import queue
import sys
import threading
import time
import traceback

from warpsmith_baselines import wire
from warpsmith_baselines.wire import Absent, BadRequest, Broken, Failed

PROTOCOL = 1
MAX_SUBJECTS = 256
STORE_BYTES = 4 << 30
EXIT_GARBLED, EXIT_DEADLINE, EXIT_LOST = 3, 4, 5


def engine(hello):
    """What carries requests out: PyTorch, or the stand-in for tests."""
    if hello.get("fake") is not None:
        from warpsmith_baselines.fake import Engine
        return Engine(hello["fake"])
    from warpsmith_baselines.subject import Engine
    return Engine(hello.get("device_uuid"), hello.get("device", 0))


class Server:
    def __init__(self, source, out):
        self.out = out
        self.requests = queue.Queue(1)
        self.deadline = None
        self.engine = None
        self.subjects = {}
        self.store = {}
        threading.Thread(target=self._read, args=(source,), daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    def work(self):
        while True:
            message, blobs = self.requests.get()
            if message is None:
                self.reply(0, {"reply": "error", "code": "bad-request", "message": blobs})
                return EXIT_GARBLED
            number = message.get("id", 0)
            if sum(map(len, self.store.values())) + sum(map(len, blobs.values())) > STORE_BYTES:
                self.store.clear()
            self.store.update(blobs)
            self.deadline = time.monotonic() + float(message.get("seconds", 3600))
            last = False
            try:
                answer, data = self.answer(message)
            except Absent as e:
                answer, data = {"reply": "absent", "why": str(e)}, ()
            except Failed as e:
                answer, data, last = {"reply": "failed", "why": str(e), "last": e.last}, (), e.last
            except BadRequest as e:
                answer, data = {"reply": "error", "code": "bad-request", "message": str(e)}, ()
            except Exception as e:              # of ours, or of a library in a place where none is expected
                traceback.print_exc()
                answer, data = {"reply": "failed", "why": "%s: %s" % (type(e).__name__, e), "last": True}, ()
                last = True
            self.deadline = None
            self.reply(number, answer, data)
            if last:
                return EXIT_LOST

    def answer(self, m):
        op = m.get("op")
        if op == "hello":
            if m.get("protocol") != PROTOCOL:
                raise BadRequest("this speaks protocol %d, not %s" % (PROTOCOL, m.get("protocol")))
            self.engine = engine(m)
            return {"reply": "hello", "protocol": PROTOCOL, **self.engine.describe()}, ()
        if self.engine is None:
            raise BadRequest("hello comes first")
        if op == "prepare":
            return self.prepare(m)
        if op == "discard":
            subject = self.subjects.pop(m.get("subject"), None)
            if subject is not None:
                subject.close()
            return {"reply": "done"}, ()
        subject = self.subjects.get(m.get("subject"))
        if subject is None:
            raise BadRequest("there is no subject %s" % m.get("subject"))
        if op == "time":
            return subject.time(m)
        if op == "output":
            return subject.output(int(m.get("base", 0)))
        raise BadRequest("there is no request %s" % op)

    def prepare(self, m):
        named = [t["sha256"] for base in m["bases"] for t in base]
        missing = sorted({sha for sha in named if sha not in self.store})
        if missing:
            return {"reply": "missing", "sha256": missing}, ()
        old = self.subjects.pop(m["subject"], None)
        if old is not None:
            old.close()
        if len(self.subjects) >= MAX_SUBJECTS:
            raise BadRequest("more than %d subjects" % MAX_SUBJECTS)
        bases = [{t["name"]: (t["dtype"], list(t["shape"]), self.store[t["sha256"]]) for t in base} for base in m["bases"]]
        subject = self.engine.prepare(m, bases)
        self.subjects[m["subject"]] = subject
        return {"reply": "prepared", **subject.describe()}, ()

    def reply(self, number, answer, data=()):
        wire.send(self.out, {"id": number, **answer}, data)

    def _read(self, source):
        while True:
            try:
                received = wire.receive(source)
            except Broken as e:
                self.requests.put((None, str(e)))
                return
            if received is None:
                os._exit(0)
            self.requests.put(received)

    def _watch(self):
        while True:
            time.sleep(0.05)
            at = self.deadline
            if at is not None and time.monotonic() >= at:
                os._exit(EXIT_DEADLINE)


def main(source=None, out=None):
    """Serves until something ends it. The streams are this process's own unless given."""
    if source is None:
        source = sys.stdin.buffer
    if out is None:
        out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    code = Server(source, out).work()
    sys.stderr.flush()
    os._exit(code)              # no destructor: the driver's would wait for a kernel that does not end
