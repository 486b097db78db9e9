"""The reviewed list: tests that assert what stock itself says or counts, each with its reason."""

from __future__ import annotations

import pathlib
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]

FILE = pathlib.Path(__file__).with_name("reviewed.toml")


def load(path: pathlib.Path = FILE) -> dict[str, str]:
    """The reason, by test. A test that is listed twice, or without a reason, is an error."""
    reasons: dict[str, str] = {}
    groups: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("reviewed", [])
    for group in groups:
        reason = group["reason"].strip()
        if not reason:
            raise ValueError(f"{path}: tests without a reason: {group['tests']}")
        for test in group["tests"]:
            if test in reasons:
                raise ValueError(f"{path}: {test} is listed twice")
            reasons[test] = reason
    return reasons
