"""The heuristic's choices: by the wheel's `_native` where there is one, else by _heuristic.py and _tokens.py. They are the same (python/tests/choices.py), the former in a tenth of the time and less: up to 5 ms of the host for each new shape."""
import contextlib

from . import _heuristic, _tokens
from ._choice import Choice

try:
    from .. import _native as native
    native.choose
except (ImportError, AttributeError):   # a checkout
    native = None


@contextlib.contextmanager
def by_python():
    """Within it choices are Python's: for measurements and tests that change the heuristic."""
    global native
    kept, native = native, None
    try:
        yield
    finally:
        native = kept


def choose(s, sms):
    """_heuristic.choose."""
    return _made(native and native.choose(_numbers(s), sms)) or _heuristic.choose(s, sms)


def choose_lengths(s, sms, page=None):
    """_heuristic.choose_lengths."""
    return _made(native and native.choose_lengths(_numbers(s), sms, page)) or _heuristic.choose_lengths(s, sms, page)


def choose_varlen(s, tokens_q, tokens_k, sms):
    """_tokens.choose_varlen."""
    return _made(native and native.choose_varlen(_numbers(s), tokens_q, tokens_k, sms)) or _tokens.choose_varlen(s, tokens_q, tokens_k, sms)


def packed_fits(s, sms):
    """_heuristic.packed_fits."""
    fits = native and native.packed_fits(_numbers(s), sms)
    return _heuristic.packed_fits(s, sms) if fits is None else fits


def _numbers(s):
    return s.B, s.Hkv, s.group, s.Sq, s.Sk, s.D, s.causal, s.plain, s.packed, s.lse, s.wide, s.fast


def _made(found):
    """A Choice of what `_native` says; None where it says nothing: sizes beyond what it counts in."""
    return found and Choice(*found[0], *found[1])
