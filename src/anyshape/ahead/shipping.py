"""A callable and a call as bytes for a spawned process: tensors as metadata, lambdas by value.

Owns the bytes. Tensors travel as what they look like, without their data: capturing and compiling do not read it.
What is not found by its name in a module, such as a lambda or a class of a script, travels by value with cloudpickle.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
from typing import Any

import torch

_SMALL = 16  # elements up to which a tensor on the CPU travels with its data
_KINDS: dict[type, Any] = {
    torch.Tensor: lambda t, grad: t.requires_grad_(grad),
    torch.nn.Parameter: torch.nn.Parameter,
}


class Unshippable(Exception):
    """What is in the way."""


def dumps(job: Any) -> bytes:
    """The bytes of whatever is needed to capture a call."""
    file = io.BytesIO()
    try:
        _pickler()(file).dump(job)
    except Unshippable:
        raise
    except Exception as error:
        raise Unshippable(f"{type(error).__name__}: {error}{_ADVICE if not _has_cloudpickle() else ''}") from None
    return file.getvalue()


def loads(data: bytes) -> Any:
    """The way back, in the other process."""
    return _Unpickler(io.BytesIO(data)).load()


_ADVICE = "; `pip install cloudpickle` for what is not found by its name in a module"


def _has_cloudpickle() -> bool:
    return importlib.util.find_spec("cloudpickle") is not None


def _pickler() -> type:
    if not _has_cloudpickle():
        return type("Pickler", (_WithoutData, pickle.Pickler), {})
    import cloudpickle

    return type("Pickler", (_WithoutData, cloudpickle.Pickler), {})


class _WithoutData:
    """Mixed into a pickler: tensors are told, each once, so that those that are one or share memory do so there."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)  # type: ignore[call-arg]
        self._tensors: dict[int, tuple[int, Any]] = {}  # with the tensor, so that none takes another's id
        self._storages: dict[tuple[Any, int], int] = {}

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor):
            return None
        if id(obj) in self._tensors:
            return self._tensors[id(obj)][0], None
        number = len(self._tensors)
        self._tensors[id(obj)] = number, obj
        return number, (type(obj), obj.requires_grad, self._described(obj))

    def _described(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        if type(tensor) not in _KINDS or tensor.layout != torch.strided:
            raise Unshippable(f"a {type(tensor).__name__} of layout {tensor.layout} cannot be told without its data")
        if tensor.device.type == "cpu" and tensor.numel() <= _SMALL and tensor.is_contiguous():
            return tensor.dtype, tensor.tolist()
        storage = tensor.untyped_storage()
        address = tensor.device, storage.data_ptr() or -id(tensor)
        at = self._storages.setdefault(address, len(self._storages))
        where = str(tensor.device), at, storage.nbytes()
        return tensor.dtype, where, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._tensors: dict[int, torch.Tensor] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def persistent_load(self, pid: Any) -> Any:
        number, told = pid
        if told is not None:
            kind, requires_grad, described = told
            with torch.inference_mode(False):
                self._tensors[number] = _KINDS[kind](self._made(*described), requires_grad)
        return self._tensors[number]

    def _made(self, dtype: torch.dtype, *told: Any) -> torch.Tensor:
        if len(told) == 1:
            return torch.tensor(told[0], dtype=dtype)
        (device, at, size), offset, shape, strides = told
        if at not in self._storages:
            self._storages[at] = torch.UntypedStorage(size, device=device)
        storage = self._storages[at]
        made = torch.empty(0, dtype=dtype, device=device).set_(storage, offset, shape, strides)
        if device != "cpu":  # memory that nobody touches costs nothing there; elsewhere it is given back
            storage.resize_(0)
        return made
