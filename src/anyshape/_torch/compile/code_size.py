"""The machine code that Inductor has loaded in this process.

Owns the count: its libraries for the CPU and its kernels for a GPU, of the whole process. Neither is ever unloaded, by
torch or when the last call of it is gone, so it only grows.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sys
from typing import Any


def loaded() -> int:
    """Bytes, so far; 0 while nothing has been compiled."""
    codecache = sys.modules.get("torch._inductor.codecache")
    if codecache is None:
        return 0
    ending = f".{codecache.CppPythonBindingsCodeCache.entry_function}"  # modules are named by a hash and by this
    libraries = [module for name, module in list(sys.modules.items()) if name.endswith(ending)]
    kernels = [k for module in list(codecache.PyCodeCache.modules) for k in list(vars(module).values())]
    return sum(map(_library, libraries)) + sum(map(_kernel, kernels))


def _library(module: Any) -> int:
    return _size(getattr(module, "__file__", None) or "")


def _kernel(value: Any) -> int:
    """Of what a generated module holds: a kernel of Triton's has the code of each of its configurations in files."""
    made = getattr(value, "compile_results", None)
    if not isinstance(made, list):
        return 0
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir
    from torch._inductor.runtime.runtime_utils import triton_hash_to_path_key

    directory = triton_cache_dir(getattr(value, "triton_meta", {}).get("device", 0))
    hashes = [str(getattr(result.kernel, "hash", "")) for result in made]
    places = (os.path.join(directory, triton_hash_to_path_key(h), "*.cubin") for h in hashes if h)
    return sum(_size(file) for place in places for file in glob.glob(place))


def _size(file: str) -> int:
    with contextlib.suppress(OSError):
        return os.path.getsize(file)
    return 0
