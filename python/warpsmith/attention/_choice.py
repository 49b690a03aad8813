"""What the heuristic is asked, and what it says."""
from dataclasses import dataclass, replace

SMS = 132


@dataclass(frozen=True)
class Shape:
    """A problem as the heuristic sees it. `plain` says that scales are per head or tensor, `packed` that V comes transposed in whole tiles, `lse` that
    the log-sum-exp is wanted, `wide` that queries are of the output's 16 bits: with packed values only, and without log-sum-exps; `fast` that weights may be
    linear between powers of two; `shared` how many of Hkv have one head of K and V (few.cuh, `heads_apart`)."""
    B: int
    Hq: int
    Hkv: int
    Sq: int
    Sk: int
    D: int
    causal: bool
    plain: bool = True
    packed: bool = False
    lse: bool = False
    wide: bool = False
    fast: bool = False
    shared: int = 1

    @property
    def group(self):
        return self.Hq // self.Hkv

    @property
    def kv_heads(self):
        """Heads of K and V."""
        return self.Hkv // self.shared


@dataclass(frozen=True)
class Choice:
    """An instance (file and defines), its launch, and the figures that its parameters need."""
    file: str
    defines: tuple
    grid: tuple
    block: int
    shared_bytes: int
    tiles_per_unit: int = 0
    tiles_per_worker: int = 0
    total_tiles: int = 0
    row_tiles: int = 0
    section: int = 1
    partial_floats: int = 0
    units: int = 0
    boxes: tuple = ()   # rows of q's and of k's and v's boxes, where the kernel takes tensor maps
    splits: int = 1   # ragged.cu: shares of keys; few.cuh: query heads that have one head of K and V, where row tiles are of one query head each
    transposes: bool = False   # the kernel takes V^T, which a launch of transpose.cu makes before, in the first of its scratch

    @property
    def name(self):
        return "_".join([self.file] + [f"{k[3:].lower()}{v}" for k, v in self.defines])

    def with_output(self, kind):
        """The same with its output's format compiled in; tiny.cu with log-sum-exps asks for it at run time, as there would be many of it."""
        return self if ("WS_LSE", 1) in self.defines else replace(self, defines=self.defines + (("WS_OUT", kind),))


def ceil_div(a, b):
    return -(-a // b)
