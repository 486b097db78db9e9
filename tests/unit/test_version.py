"""What tells one state of the package from another."""

from __future__ import annotations

import importlib.util
import pathlib
import shutil

from anyshape import _version


def test_code_that_was_changed_is_other_code(tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "_version.py"
    shutil.copy(_version.__file__, copy)
    (tmp_path / "folder").mkdir()
    other = tmp_path / "folder" / "part.py"
    found = []
    for text in ("a = 1\n", "a = 2\n", "a = 1\n"):
        other.write_text(text)
        spec = importlib.util.spec_from_file_location("copied_version", copy)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append(module.code())
    assert found[0] == found[2] != found[1]
    assert all(code.startswith(f"{_version.__version__}-") for code in found)
