"""Instances that calls can ask for: many shapes, on cards with more and fewer SMs, by the heuristic. Needs neither torch nor a GPU.

`installed.py` holds them against what a wheel carries: an instance that is missing there would be compiled at a user's first call, or fail.
"""
import importlib
import random


def asked(h, shapes=20_000, seed=1):
    """Every (target, name) that `shapes` random problems get from the heuristic module `h`, in every output format."""
    varlen, other, dice, found = importlib.import_module("._tokens", h.__package__), importlib.import_module("._portable", h.__package__), random.Random(seed), {("sm_90a", "quantise")}
    length = lambda: dice.choice([dice.randint(1, 64), dice.randint(1, 600), dice.randint(1, 5000), 2 ** dice.randint(0, 17), 2 ** dice.randint(5, 17) + dice.randint(-3, 3)])
    for _ in range(shapes):
        Hkv, group = dice.choice([1, 2, 3, 5, 8, 32]), dice.choice([1, 1, 1, 2, 3, 4, 5, 8, 16, 64])
        s = h.Shape(dice.choice([1, 2, 3, 8, 64, 500]), Hkv * group, Hkv, length(), length(), dice.choice([64, 128, 256]), dice.random() < 0.5, dice.random() < 0.7, lse=dice.random() < 0.3)
        sms, kind = dice.choice([132, 132, 114, 78, 144]), dice.randrange(3)
        found.add(("sm_90a", h.choose(s, sms).with_output(kind).name))
        found.add(("sm_90a", h.choose_ragged(s, sms).with_output(kind).name))
        found.add(("sm_90a", h.choose_lengths(s, sms, dice.choice([None, None, 16, 64, 128])).with_output(kind).name))
        found.add(("sm_90a", varlen.choose_varlen(s, dice.randint(1, s.B * s.Sq), dice.randint(1, s.B * s.Sk), sms).with_output(kind).name))
        found.update((target, c.with_output(kind).name) for target in ("sm_80", "sm_89", "sm_100", "sm_120", "compute_80") for c in (other.choose(s, sms), other.choose_lengths(s, sms)))
    return sorted(found)
