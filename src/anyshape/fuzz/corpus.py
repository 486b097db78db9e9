"""Where a campaign is kept.

Owns the files: one a finished chunk, so that a campaign goes on where it stopped and machines can share one, and two a
finding. A corpus is a directory or any URL that fsspec knows.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from anyshape.errors import missing
from anyshape.fuzz import repro
from anyshape.fuzz.repro import Finding


class Corpus:
    """Chunks and findings under one address; without an address nothing is kept."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._files: Any = None
        self._root = ""
        if address is not None:
            try:
                import fsspec
            except ImportError as error:
                raise missing("fsspec", needed_for="a corpus at a URL", extra="urls") from error
            self._files, self._root = fsspec.core.url_to_fs(address)
            self._files.makedirs(self._root, exist_ok=True)

    def chunk(self, campaign: str, start: int) -> dict[str, Any] | None:
        """The result of a finished chunk."""
        if self._files is None:
            return None
        try:
            return json.loads(self._files.cat_file(f"{self._root}/{campaign}/{start:07d}.json"))  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None

    def save_chunk(self, campaign: str, start: int, result: dict[str, Any]) -> None:
        self._write(f"{campaign}/{start:07d}.json", json.dumps(result))

    def save_finding(self, finding: Finding) -> str | None:
        """The address of the repro file."""
        self._write(f"findings/{finding.name}.json", json.dumps(finding.json(), indent=1))
        return self._write(f"findings/{finding.name}.py", repro.text(finding))

    def _write(self, path: str, text: str) -> str | None:
        if self._files is None:
            return None
        whole = f"{self._root}/{path}"
        with contextlib.suppress(FileExistsError):
            self._files.makedirs(whole.rpartition("/")[0], exist_ok=True)
        # To another name first: a chunk that is half written is no chunk.
        self._files.pipe_file(whole + ".part", text.encode())
        self._files.mv(whole + ".part", whole)
        return whole
