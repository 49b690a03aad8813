"""Clocks, power and temperature of one device, by NVIDIA's management library; nothing where it is not there."""
import ctypes

_REASONS = {2: "application_clocks", 4: "sw_power_cap", 8: "hw_slowdown", 0x10: "sync_boost", 0x20: "sw_thermal", 0x40: "hw_thermal",
            0x80: "hw_power_brake", 0x100: "display_clocks"}


class Nvml:
    """Reads one device's state, named by its UUID."""

    def __init__(self, uuid):
        self.handle = None
        for name in ("libnvidia-ml.so.1", "nvml.dll"):
            try:
                lib = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            return
        handle = ctypes.c_void_p()
        try:
            if lib.nvmlInit_v2() == 0 and lib.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0:
                self.lib, self.handle = lib, handle
        except AttributeError:
            return

    def read(self):
        """One reading; what the device does not tell is absent."""
        if self.handle is None:
            return {}
        found = {}
        for key, function, args in (("sm_mhz", "nvmlDeviceGetClockInfo", (1,)), ("memory_mhz", "nvmlDeviceGetClockInfo", (2,)),
                                    ("temperature_c", "nvmlDeviceGetTemperature", (0,)), ("power_w", "nvmlDeviceGetPowerUsage", ())):
            value = ctypes.c_uint()
            if self._call(function, *args, ctypes.byref(value)):
                found[key] = value.value / 1e3 if key == "power_w" else value.value
        reasons = ctypes.c_ulonglong()
        if self._call("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.byref(reasons)):
            held = [word for bit, word in _REASONS.items() if reasons.value & bit]
            if held:
                found["throttle"] = held
        return found

    def _call(self, function, *args):
        try:
            return getattr(self.lib, function)(self.handle, *args) == 0
        except AttributeError:
            return False
