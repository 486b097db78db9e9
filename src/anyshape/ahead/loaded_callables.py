"""The function or module that `anyshape.load` gives back, which never compiles.

Owns the callables; which program serves a call is the dispatcher's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from anyshape.ahead.loaded_programs import Dispatcher
from anyshape.declaration.entry_check import EntryCheck
from anyshape.errors import refuse_deepcopy, refuse_pickle
from anyshape.programs import Program

P = ParamSpec("P")
R = TypeVar("R")


class Serving:
    """The call of a loaded artifact: the entry check, the dispatcher, and what happens outside of its programs."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        manifest: Mapping[str, Any],
        *,
        entry_check: EntryCheck | None,
        eagerly: Callable | None,
    ) -> None:
        self.dispatcher, self.manifest, self.eagerly = dispatcher, manifest, eagerly
        self.call: Callable[..., Any] = self._call if entry_check is None else entry_check.around(self._call)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        run = self.dispatcher.find(args, kwargs)
        if run is not None:
            return run(*args, **kwargs)
        error = self.dispatcher.new_behaviour(args, kwargs, self.manifest["name"])
        if self.eagerly is None:
            raise error
        reason = str(error.value or error.what)
        self.dispatcher.fallbacks[reason] = self.dispatcher.fallbacks.get(reason, 0) + 1
        return self.eagerly(*args, **kwargs)

    @property
    def programs(self) -> tuple[Program, ...]:
        return tuple(p.view() for p in self.dispatcher.programs)


class ServedFunction(Generic[P, R]):
    """A function whose programs were loaded. It is called as the function is."""

    def __init__(self, serving: Serving, live: Any) -> None:
        if live is not None:
            functools.update_wrapper(self, live)
        self._serving = serving
        self._call = serving.call

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(*args, **kwargs)  # type: ignore[no-any-return]

    @property
    def manifest(self) -> Mapping[str, object]:
        """What the file says of itself."""
        return self._serving.manifest

    @property
    def programs(self) -> tuple[Program, ...]:
        """What was loaded, with its calls."""
        return self._serving.programs

    @property
    def fallbacks(self) -> dict[str, int]:
        """How often a call ran eagerly, by reason."""
        return dict(self._serving.dispatcher.fallbacks)

    def __repr__(self) -> str:
        return f"<anyshape-loaded {self.manifest['name']}>"

    def __reduce__(self) -> Any:
        raise refuse_pickle(str(self.manifest["name"]))

    def __deepcopy__(self, memo: Any) -> Any:
        raise refuse_deepcopy(str(self.manifest["name"]))


class ServedModule(torch.nn.Module):
    """A module whose programs were loaded. Its parameters, buffers and state are those of the live module."""

    def __init__(self, serving: Serving, live: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = live
        object.__setattr__(self, "_serving", serving)
        self.training = live.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._serving.call(*args, **kwargs)

    def train(self, mode: bool = True) -> ServedModule:
        self.training = mode
        self._orig_mod.train(mode)
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod.load_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["_orig_mod"], name)

    @property
    def manifest(self) -> Mapping[str, Any]:
        return self._serving.manifest  # type: ignore[no-any-return]

    @property
    def programs(self) -> tuple[Program, ...]:
        return self._serving.programs  # type: ignore[no-any-return]

    @property
    def fallbacks(self) -> dict[str, int]:
        return dict(self._serving.dispatcher.fallbacks)

    def __reduce__(self) -> Any:
        raise refuse_pickle(self.manifest["name"])

    def __deepcopy__(self, memo: Any) -> Any:
        raise refuse_deepcopy(self.manifest["name"])
