# Read after `SOURCES = {module: text}`, by an interpreter that has nothing but its standard input: makes the modules importable from there.
import importlib.abc
import importlib.util
import sys


class Sent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name not in SOURCES:  # noqa: F821
            return None
        return importlib.util.spec_from_loader(name, self, is_package="." not in name)

    def exec_module(self, module):
        exec(compile(SOURCES[module.__name__], module.__name__, "exec"), module.__dict__)  # noqa: F821


sys.meta_path.insert(0, Sent())
from warpsmith_baselines.serve import main  # noqa: E402

main()
