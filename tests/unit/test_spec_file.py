"""anyshape.toml: finding it, reading it, and errors that name its lines."""

from __future__ import annotations

import inspect
import json
import pathlib
import textwrap

import pytest

import anyshape
from anyshape import spec_file
from anyshape.declaration import options
from anyshape.errors import DeclarationError

GOOD = """
# what this package is called with
["pkg.model:Model.forward"]
compile = true
fullgraph = true
backend = "eager"
mode = "max-autotune"
where = [
  "1 <= batch <= 64",   # small
  "seq % 8 == 0",
]
layout = "any"
hints = { seq = [128, 1024], batch = 16 }
specialize = ["batch == 1"]
semantics = "oblivious"
on_new_behavior = "error"

["pkg.model:Model.forward".shapes]
x = "batch seq 512"
"cfg['ids']" = "batch seq"

["pkg.other:f"]
shapes.x = "n ..."
"""


def write(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "anyshape.toml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def test_read(tmp_path):
    spec = spec_file.read(write(tmp_path, GOOD))
    first, second = spec.entries
    assert (first.module, first.name, first.target) == ("pkg.model", "Model.forward", "pkg.model:Model.forward")
    assert (first.compile, first.fullgraph, first.backend, first.mode) == (True, True, "eager", "max-autotune")
    assert (second.compile, second.fullgraph, second.backend, second.mode) == (False, False, None, None)
    assert first.line == 3
    declaration = first.declaration()
    assert declaration.json()["shapes"] == {"x": "batch seq 512", "cfg['ids']": "batch seq"}
    assert declaration.hints == {"seq": (128, 1024), "batch": (16,)}
    assert declaration.semantics == "oblivious"
    assert spec.entry("pkg.other", "f") is second
    assert spec.entry("pkg.other", "g") is None


def test_an_empty_file_says_nothing(tmp_path):
    assert spec_file.read(write(tmp_path, "")).entries == ()


def test_found_from_the_working_directory_up(tmp_path, monkeypatch):
    monkeypatch.delenv("ANYSHAPE_SPEC", raising=False)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    path = write(tmp_path, GOOD)
    monkeypatch.chdir(inner)
    assert spec_file.find() == path.resolve()
    nearer = write(tmp_path / "a", GOOD)
    assert spec_file.find() == nearer.resolve()
    assert spec_file.load().path == nearer.resolve()


def test_named_by_the_environment(tmp_path):
    path = tmp_path / "other.toml"
    path.write_text(GOOD)
    assert spec_file.find(tmp_path, {"ANYSHAPE_SPEC": str(path)}) == path
    with pytest.raises(DeclarationError, match="ANYSHAPE_SPEC names a file that is not there"):
        spec_file.find(tmp_path, {"ANYSHAPE_SPEC": str(tmp_path / "absent.toml")})


def test_none_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(spec_file, "FILE_NAME", "anyshape-that-is-nowhere.toml")
    assert spec_file.find(tmp_path, {}) is None


@pytest.mark.parametrize(
    ("text", "line", "marked", "code"),
    [
        ('["m:f"\n', 1, None, "AS010"),
        ('["m:f"]\nshapes = { x = "a" \n', 2, None, "AS010"),
        ('["m:f"]\n\nshape = {}\n', 3, "shape", "AS011"),
        ('["m:f"]\ncompile = "yes"\n', 2, "compile", "AS007"),
        ('["m:f"]\nbackend = 3\n', 2, "backend", "AS007"),
        ("x = 1\n", 1, "x", "AS010"),
        ("[model]\ncompile = true\n", 1, "model", "AS010"),
        ("\n[pkg.mod]\ncompile = true\n", 2, "pkg", "AS010"),
        ('["m:f.<locals>.g"]\ncompile = true\n', 1, "m:f.<locals>.g", "AS010"),
        ('["m:f"]\nshapes = { x = "batch 1.5" }\n', 2, "1.5", "AS010"),
        ('["m:f"]\nwhere = []\nshapes.x = "batch"\nshapes.y = "batch, seq"\n', 4, ",", "AS010"),
        ('["m:f".shapes]\nx = "batch"\ny = "seq seq )"\n', 3, ")", "AS010"),
        ('["m:f"]\nshapes.x = "n"\nwhere = [\n  "n > 3",\n  "n >> 4",\n]\n', 5, ">>", "AS010"),
        ('["m:f"]\nshapes.x = "n"\nhints = { n = 3, q = 4 }\n', 3, "q", "AS011"),
        ('["m:f"]\nshapes.x = "n"\nhints = { n = -3 }\n', 3, "-3", "AS007"),
        ('["m:f"]\nshapes.x = "n"\nlayout = "foo"\n', 3, "foo", "AS007"),
        ('["m:f"]\nshapes.x = "n"\nlayout.x = "foo"\n', 3, "foo", "AS007"),
        ('["m:f"]\nsemantics = "foo"\n', 2, "foo", "AS007"),
        ('["m:f"]\nwhere = "n > 3"\n', 2, "n > 3", "AS010"),
        ('["m:f"]\nshapes = 3\n', 2, "3", "AS010"),
        ('["a:f"]\nshapes.x = "1.5"\n["m:f"]\nshapes.x = "n"\n', 2, "1.5", "AS010"),
        ('["a:f"]\nshapes.x = "n"\n["m:f"]\nshapes.x = "n -1"\n', 4, "-1", "AS010"),
    ],
)
def test_errors_name_the_line(tmp_path, text, line, marked, code):
    path = write(tmp_path, text)
    with pytest.raises(DeclarationError) as caught:
        spec_file.read(path)
    error = caught.value
    where, shown, carets = str(error.where).split("\n")
    assert where == f"{path}:{line}"
    assert error.code == code
    assert error.fix
    if marked is not None:
        begin = carets.index("^")
        assert shown[begin : begin + carets.count("^")] == marked


def test_contradictions_name_the_table(tmp_path):
    path = write(tmp_path, '\n["m:f"]\nshapes.x = "n"\nwhere = ["n > 3", "n < 2"]\n')
    with pytest.raises(DeclarationError) as caught:
        spec_file.read(path)
    assert f'{path}:2 in ["m:f"]' in str(caught.value)
    assert caught.value.code == "AS012"


def test_a_signature_is_checked_later(tmp_path):
    path = write(tmp_path, '["m:f"]\nshapes = { hidden = "n" }\n')
    (entry,) = spec_file.read(path).entries

    def f(hiddens):
        pass

    with pytest.raises(DeclarationError) as caught:
        entry.declaration(inspect.signature(f))
    assert caught.value.code == "AS011"
    assert f"{path}:2" in str(caught.value)
    assert caught.value.fix == 'shapes = { hiddens = "n" }'


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "anyshape.toml"
    path.write_bytes(b'\n["m:f"]\n\xff')
    with pytest.raises(DeclarationError) as caught:
        spec_file.read(path)
    assert f"{path}:3" in str(caught.value)
    with pytest.raises(DeclarationError, match="cannot be read"):
        spec_file.read(tmp_path / "absent.toml")


def test_the_schema_knows_the_same_words():
    path = pathlib.Path(anyshape.__file__).parent / "schemas" / "anyshape-toml.schema.json"
    schema = json.loads(path.read_text())
    table = schema["$defs"]["callable"]["properties"]
    assert set(table) == set(spec_file.KEYS)
    assert tuple(schema["$defs"]["layout"]["enum"]) == options.LAYOUTS
    assert tuple(table["semantics"]["enum"]) == options.SEMANTICS
    assert tuple(table["on_new_behavior"]["enum"]) == options.ON_NEW_BEHAVIOR
    assert tuple(table["specialize"]["oneOf"][0]["enum"]) == options.SPECIALIZE
