"""The CUDA driver and NVRTC through ctypes: modules, tensor maps, launches. Knows nothing of attention.

The only module here that calls foreign functions. Errors are `CudaError` with the driver's own name of them.
"""
import contextlib
import ctypes
import glob
import os
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p


class CudaError(RuntimeError):
    """A driver or compiler call failed; the message has the call and the reason."""


_cuda = None


def cuda():
    """libcuda, loaded once."""
    global _cuda
    if _cuda is None:
        _cuda = ctypes.CDLL("libcuda.so.1")
        _cuda.cuLaunchKernelEx.argtypes = [c_void_p] * 4
    return _cuda


def check(code, what):
    """Raises unless `code` is CUDA_SUCCESS."""
    if code:
        text = c_char_p()
        cuda().cuGetErrorName(code, byref(text))
        raise CudaError(f"{what}: {text.value.decode() if text.value else code}")


@contextlib.contextmanager
def relaxed_capture():
    """Lets this thread make calls that a graph's capture forbids elsewhere: loading code disturbs no stream."""
    mode = c_int(2)   # CU_STREAM_CAPTURE_MODE_RELAXED
    check(cuda().cuThreadExchangeStreamCaptureMode(byref(mode)), "cuThreadExchangeStreamCaptureMode")
    try:
        yield
    finally:
        cuda().cuThreadExchangeStreamCaptureMode(byref(mode))


def capture_id(stream):
    """Which capture a stream is under, by a number that no other has in this process; 0 if it is under none."""
    status, number = c_int(), c_uint64()
    # With the _v2 of its name, which drivers of CUDA 13 still have: the later one has an argument more.
    check(cuda().cuStreamGetCaptureInfo_v2(c_void_p(stream), byref(status), byref(number), None, None, None), "cuStreamGetCaptureInfo")
    return number.value if status.value == 1 else 0


def bind_context(device):
    """Makes the device's primary context this thread's, if the thread has none: PyTorch binds it late in threads of one's own."""
    current = c_void_p()
    check(cuda().cuCtxGetCurrent(byref(current)), "cuCtxGetCurrent")
    if not current.value:
        handle, context = c_int(), c_void_p()
        check(cuda().cuDeviceGet(byref(handle), c_int(device)), "cuDeviceGet")
        check(cuda().cuDevicePrimaryCtxRetain(byref(context), handle), "cuDevicePrimaryCtxRetain")
        check(cuda().cuCtxSetCurrent(context), "cuCtxSetCurrent")


class _DLTensor(ctypes.Structure):   # dlpack.h: DLManagedTensor, whose first field is a DLTensor
    _fields_ = [("data", c_void_p), ("device_kind", c_int), ("device", c_int), ("dimensions", c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", c_void_p), ("strides", c_void_p), ("offset", c_uint64), ("context", c_void_p), ("deleter", c_void_p)]


_kept = []


def kept_bytes(n, device):
    """A DLPack capsule of n bytes of a device, whose context is current, for the process's life: never given back, and not of torch's allocator."""
    address, shape = c_uint64(), c_uint64(n)
    check(cuda().cuMemAlloc_v2(byref(address), c_size_t(n)), f"cuMemAlloc({n})")
    t = _DLTensor(address.value, 2, device, 1, 1, 8, 1, ctypes.addressof(shape), None, 0, None, None)
    _kept.append((t, shape))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [c_void_p, c_char_p, c_void_p]
    return make(ctypes.addressof(t), b"dltensor", None)


class _Attribute(ctypes.Structure):
    _fields_ = [("id", c_int), ("pad", c_int), ("value", c_int), ("rest", ctypes.c_char * 60)]


class _Config(ctypes.Structure):
    _fields_ = [(n, c_uint) for n in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")] + [
        ("stream", c_uint64), ("attributes", c_void_p), ("count", c_uint)]


class Launch:
    """A kernel with its grid and arguments' places, to be started again and again. Belongs to one thread.

    Launches are programmatically dependent: the kernel may be placed while the stream's earlier ones end, and waits for them itself
    (griddepcontrol.wait) before it touches memory.
    """

    def __init__(self, kernel, grid, block, arguments):
        self.attribute = _Attribute(6, 0, 1)   # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        self.config = _Config(*grid, block, 1, 1, kernel.shared_bytes, 0, ctypes.addressof(self.attribute), int(kernel.dependent))
        self.places = (c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        self.keep = arguments, kernel
        self.call = cuda().cuLaunchKernelEx, ctypes.addressof(self.config), kernel.function, ctypes.addressof(self.places)

    def __call__(self, stream):
        self.config.stream = stream
        call, config, function, places = self.call
        code = call(config, function, places, None)
        if code:
            check(code, "cuLaunchKernelEx")


class Kernel:
    """One entry of one loaded module, allowed as much dynamic shared memory as it will be launched with."""

    def __init__(self, cubin, entry, shared_bytes, dependent=True):
        lib, module, function = cuda(), c_void_p(), c_void_p()
        check(lib.cuModuleLoadData(byref(module), cubin), "cuModuleLoadData")
        check(lib.cuModuleGetFunction(byref(function), module, entry.encode()), f"cuModuleGetFunction({entry})")
        self.module, self.function, self.shared_bytes, self.dependent = module, function.value, shared_bytes, dependent
        check(lib.cuFuncSetAttribute(function, c_int(8), c_int(shared_bytes)), f"{shared_bytes} bytes of shared memory")


# CUtensorMap: type UINT8; interleave none; swizzle 64B or 128B; L2 promotion 128B (decoding is 5% slower with 256); out of bounds reads zeros.
_SWIZZLE = {64: 2, 128: 3}
_LONGS = {n: c_uint64 * n for n in (3, 4)}
_INTS = c_uint * 4
_NONE = _INTS(1, 1, 1, 1)


def encode_tensor_map(into, address, dims, strides, box):
    """Encodes a byte tensor's map of four dimensions: dims and box innermost first, strides in bytes from the second dimension on. The box's width is the swizzle's."""
    code = cuda().cuTensorMapEncodeTiled(into, 0, 4, c_void_p(address), _LONGS[4](*dims), _LONGS[3](*strides), _INTS(*box), _NONE, 0, _SWIZZLE[box[0]], 2, 0)
    if code:
        check(code, f"cuTensorMapEncodeTiled(dims {dims}, strides {strides}, box {box})")


def _find_nvrtc():
    names = [os.path.join(os.environ[v], "lib64", "libnvrtc.so*") for v in ("CUDA_HOME", "CUDA_PATH") if v in os.environ]
    names += [os.path.join(p, "nvidia", "*", "lib", "libnvrtc.so.1*") for p in sys.path]
    names += ["/usr/local/cuda*/lib64/libnvrtc.so*", "/usr/local/cuda*/targets/*/lib/libnvrtc.so*"]
    for pattern in names:
        found = sorted(f for f in glob.glob(pattern) if ".alt." not in f and "builtins" not in f)
        if found:
            return found[-1]
    raise CudaError("no libnvrtc found: install nvidia-cuda-nvrtc or set CUDA_HOME")


def compile_cubin(source, name, include, defines, arch="sm_90a"):
    """Source text to a cubin, with NVRTC; to PTX for a virtual architecture."""
    path = _find_nvrtc()
    for builtins in glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so.*")):
        ctypes.CDLL(builtins)   # NVRTC looks for it by name, and finds it once it is loaded
    rtc = ctypes.CDLL(path)
    program = c_void_p()
    options = [f"--gpu-architecture={arch}", "--std=c++17", "-lineinfo", f"-I{include}"] + [f"-D{k}={v}" for k, v in defines]
    argv = (c_char_p * len(options))(*[o.encode() for o in options])
    if rtc.nvrtcCreateProgram(byref(program), source.encode(), name.encode(), 0, None, None):
        raise CudaError("nvrtcCreateProgram failed")
    failed = rtc.nvrtcCompileProgram(program, len(options), argv)
    size = c_size_t()
    if failed:
        rtc.nvrtcGetProgramLogSize(program, byref(size))
        log = ctypes.create_string_buffer(size.value)
        rtc.nvrtcGetProgramLog(program, log)
        raise CudaError(f"{name}: {log.value.decode()}")
    get_size, get = (rtc.nvrtcGetPTXSize, rtc.nvrtcGetPTX) if arch.startswith("compute_") else (rtc.nvrtcGetCUBINSize, rtc.nvrtcGetCUBIN)
    get_size(program, byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    get(program, cubin)
    rtc.nvrtcDestroyProgram(byref(program))
    return cubin.raw
