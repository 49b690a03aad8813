"""V^T for kernels that take it: a launch of transpose.cu."""
import ctypes

from . import _driver, _kernels, _known
from ._params import aligned_tensor_maps


class Transposition:
    """For one set of shapes and strides. Belongs to one thread. values: a struct of its own, of which some words are addresses of a call; shapes: of V's tensor map and V^T's, which has so many bytes."""

    def __init__(self, choice, values, shapes, index, size):
        self.choice, self.values, self.shapes, self.encoded, self.bytes = choice, values, shapes, [None] * 2, size
        self.raw, self.maps = aligned_tensor_maps(2)
        self.kernel = _kernels.kernel(choice, index)
        self.launch = _driver.Launch(self.kernel, choice.grid, choice.block, [values, *self.maps])

    def __call__(self, v, v_t, stream, **addresses):
        for name, at in addresses.items():
            setattr(self.values, name, at)
        for i, at in enumerate((v, v_t)):
            if self.encoded[i] != at:
                _driver.encode_tensor_map(ctypes.byref(self.maps[i]), at, *self.shapes[i])
                self.encoded[i] = at
        self.launch(stream)

    def described(self, v, v_t, **sources):
        """The same by where addresses come from."""
        words = {getattr(type(self.values), name).offset: source for name, source in sources.items()}
        return _known.launch(self.kernel, self.choice.grid, self.choice.block, [_known.struct(self.values, words), *map(_known.tensor_map, self.shapes, (v, v_t))])
