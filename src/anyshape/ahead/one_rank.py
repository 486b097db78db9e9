"""`distributed="one-rank"`: one rank compiles a program, and all ranks load it.

Owns `distributed="one-rank"`: for a call that no program serves it looks at what other ranks have made since, and only
then one rank captures and compiles, and pins the program up for all. A rank waits for others for a bounded time, and
what cannot be shared is compiled by each rank itself. Trouble with what ranks agree through is never the caller's: it
is counted and said once.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anyshape._torch.bundle import environment
from anyshape._torch.runtime import process_group
from anyshape.ahead import sources
from anyshape.ahead.agreement import Board, Lease, StoreBoard, Unreachable, Watched, at
from anyshape.ahead.loaded_programs import Dispatcher
from anyshape.ahead.making import Workshop
from anyshape.ahead.stored import Stored
from anyshape.artifact import container, manifest, opening
from anyshape.declaration.entry_check import EntryCheck
from anyshape.engine.engine import Engine
from anyshape.errors import ArtifactError, FallbackWarning
from anyshape.foundation import interrupts, limits

_LONGEST = 20.0  # times the patience that a rank waits for others before it helps itself
_MOST_TRIES = 3  # to load what another rank may still be writing
_LOCAL = "local"  # pinned up in the place of a program: this callable cannot be shared


class OneRank:
    """The shared programs of one callable."""

    def __init__(
        self,
        live: Any,
        engine: Engine,
        *,
        entry_check: EntryCheck | None,
        mode: str | None,
        options: dict[str, Any] | None,
        artifacts: str | None,
        patience: float | None = None,
    ) -> None:
        self._live, self._engine, self._entry_check, self._artifacts = live, engine, entry_check, artifacts
        self._workshop = functools.cache(lambda: Workshop(live, entry_check=entry_check, mode=mode, options=options))
        self._options = [mode, options]
        self._dispatcher = Dispatcher(live)
        self._patience = limits.patience() if patience is None else patience
        self._seen: set[str] = set()
        self._unread: collections.Counter[str] = collections.Counter()  # how often one could not be loaded
        self._local = ""  # why this callable is compiled by each rank itself
        self._lock = threading.RLock()
        self.compiles = 0  # made by this rank

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, taken only for what is not shared."""

        @functools.wraps(call, updated=())
        def shared(*args: Any, **kwargs: Any) -> Any:
            run = self._dispatcher.find(args, kwargs)
            if run is None and not self._local:
                run = self._agree(args, kwargs)
            return call(*args, **kwargs) if run is None else run(*args, **kwargs)

        return shared

    # -- agreeing ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def _key(self) -> str:
        declaration = {} if self._entry_check is None else self._entry_check.declaration.json()
        # Ranks on other machines may need other code: they agree among themselves.
        return manifest.key_of(sources.digests(self._live), declaration, environment.here(), self._options)

    @functools.cached_property
    def _board(self) -> Board | None:
        if self._artifacts is not None:
            place = f"{self._artifacts.rstrip('/')}/{self._key[:32]}"
            return Watched(lambda: at(place))
        if process_group.has_store():
            seconds = max(self._patience, 1.0)
            return Watched(lambda: StoreBoard(process_group.store(f"anyshape/{self._key}", seconds=seconds)))
        if os.environ.get("WORLD_SIZE", "").strip() in ("", "1"):
            return None  # there is nobody to share with
        raise ArtifactError(
            'distributed="one-rank" needs something through which ranks agree, and there is no process group',
            where=f"rank {os.environ.get('RANK', '?')} of {os.environ['WORLD_SIZE']}",
            value="artifacts=None",
            fix='torch.distributed.init_process_group() before the first call, or artifacts="/a/shared/directory"',
            code="AS057",
        )

    def _agree(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """What serves a call that nothing served: made by another rank, or by this one; None for the rank's own way."""
        with self._lock, interrupts.heeded():
            board = self._board
            if board is None:
                return None
            try:
                return self._through(board, args, kwargs)
            except Unreachable as trouble:
                self._keep_local(f"what ranks agree through cannot be used: {trouble}", counted=True)
                return None

    def _through(self, board: Board, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        lease = Lease(board, patience=self._patience)
        until = time.monotonic() + _LONGEST * self._patience
        pause = 0.01
        while True:
            run = self._look(board, args, kwargs)
            if run is not None or self._local:
                return run
            if lease.take():
                with lease.hold():
                    # Another rank may have pinned it up between the look and the lease.
                    return self._look(board, args, kwargs) or self._make(board, args, kwargs)
            if time.monotonic() > until:
                self._count("ranks that compile take too long: this one helps itself")
                return None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def _look(self, board: Board, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """Load what others have pinned up since the last look."""
        for name in board.names():
            if name not in self._seen:
                try:
                    self._load(board, name)
                    self._seen.add(name)
                except MemoryError:
                    raise
                except Exception as error:  # torn, gone, another's: the others are as good as before
                    if isinstance(error, Unreachable):
                        board.names()  # it is the board that is gone, and not this one
                    self._unread[name] += 1
                    if self._unread[name] == 1:
                        said = (str(error).splitlines() or [""])[0]
                        self._count(f"what another rank made cannot be loaded: {type(error).__name__}: {said}"[:300])
                    if self._unread[name] == _MOST_TRIES:
                        self._seen.add(name)
        return self._dispatcher.find(args, kwargs)

    def _load(self, board: Board, name: str) -> None:
        where = f"program {name} of another rank"
        contents = opening.open_bytes(board.fetch(name), where=where, trusted=True, here=environment.here())
        manifest.check_key(contents.manifest, self._key, where)
        if contents.manifest["weights"] == _LOCAL:
            self._keep_local(contents.manifest["programs"][0]["behavior"])
        else:
            self._add(contents.members)

    def _add(self, members: Mapping[str, Any]) -> None:
        self._dispatcher.add(Stored.read(members, "programs/0"), at_once=True)
        self._engine.loaded = self._dispatcher.programs

    def _make(self, board: Board, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
        """Capture and compile for all ranks."""
        try:
            made = self._workshop().make(args, kwargs)
        except ArtifactError as error:
            board.publish(self._packed(_LOCAL, [{"behavior": error.what}], {}))
            self._keep_local(error.what)
            return None
        self.compiles += len(made)
        for program in made:
            members = program.members("programs/0")
            try:
                board.publish(self._packed("live", [program.summary()], members))
            except Unreachable as trouble:  # made is made
                self._add(members)
                self._keep_local(f"what ranks agree through cannot be used: {trouble}", counted=True)
        return self._dispatcher.find(args, kwargs) if self._local else self._look(board, args, kwargs)

    def _packed(self, weights: str, programs: list[dict[str, Any]], members: dict[str, bytes]) -> bytes:
        facts = manifest.compose(
            name=str(getattr(self._live, "__qualname__", type(self._live).__name__)),
            environment={**environment.here(), "device": environment.here()["device"].split(", ")[-1]},
            source={},
            declaration={},
            weights=weights,
            programs=programs,
            key=self._key,
        )
        return container.pack(json.loads(json.dumps(facts)), members)

    def _keep_local(self, reason: str, *, counted: bool = False) -> None:
        if not self._local:
            self._local = reason
            text = f"each rank compiles for itself: {reason}"
            if counted:
                self._count(text)
            else:
                warnings.warn(text, FallbackWarning, 4)

    def _count(self, text: str) -> None:
        """Trouble from outside: the call is served all the same."""
        self._engine.count_eager(text)
        warnings.warn(text, FallbackWarning, 5)
