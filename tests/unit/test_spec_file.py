"""anyshape.toml: finding it, reading it, and errors that name its lines."""

from __future__ import annotations

import inspect
import json
import os
import pathlib
import textwrap
import time
import warnings

import pytest

import anyshape
from anyshape.declaration import DeclarationWarning, options, spec_file
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


# -- whose file it is, and how far it is looked for ------------------------------------------------------------------


@pytest.fixture
def project(tmp_path, monkeypatch):
    """outer/project/.git, with folders inside; the working directory is the innermost."""
    monkeypatch.delenv("ANYSHAPE_SPEC", raising=False)
    inner = tmp_path / "outer" / "project" / "package" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    spec_file._say_ignored.cache_clear()
    return tmp_path / "outer" / "project"


@pytest.mark.parametrize("root", [".git", "pyproject.toml"])
@pytest.mark.parametrize(
    ("folder", "found"),
    [("package/inner", True), ("package", True), (".", True), ("..", False), ("../..", False)],
)
def test_it_is_looked_for_up_to_the_root_of_the_project(project, root, folder, found):
    (project / root).mkdir()
    path = write(project / folder, GOOD)
    assert spec_file.find() == (path.resolve() if found else None)
    assert (spec_file.load() is not None) == found


def test_a_git_worktree_has_a_root_too(project):
    (project / ".git").write_text("gitdir: /elsewhere")
    write(project.parent, GOOD)
    assert spec_file.find() is None


@pytest.mark.parametrize(
    ("folder", "mode", "found"),
    [
        ("package", 0o755, True),
        ("package", 0o700, True),
        ("package", 0o777, False),  # anybody may have put it there
        ("package", 0o1777, False),
        ("package/inner", 0o777, True),  # where one works is where one works, if the file is one's own
    ],
)
def test_without_a_root_folders_of_ones_own_are_looked_into(project, folder, mode, found):
    path = write(project / folder, GOOD)
    (project / folder).chmod(mode)
    assert spec_file.find() == (path.resolve() if found else None)


def test_the_search_ends_at_a_folder_that_others_may_write_to(project):
    write(project, GOOD)
    (project / "package").chmod(0o777)
    assert spec_file.find() is None
    (project / "package").chmod(0o755)
    assert spec_file.find() is not None


OWNERS = {
    "mine": (0, 0o644, True),
    "mine, and my group's": (0, 0o664, True),
    "mine alone": (0, 0o600, True),
    "anybody's to write to": (0, 0o646, False),
    "another's": (1, 0o644, False),
    "another's, who lets me write": (1, 0o666, False),
}


@pytest.mark.parametrize("how", list(OWNERS))
def test_a_file_that_is_not_ones_own_says_nothing(project, monkeypatch, how):
    other, mode, found = OWNERS[how]
    anyshape.compile(declared, backend="eager")  # imports, with what they warn of
    (project / ".git").mkdir()
    path = write(project / "package", "this is not TOML" if not found else GOOD)
    path.chmod(mode)
    if other:
        monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    if found:
        assert spec_file.load().path == path.resolve()
        return
    with pytest.warns(DeclarationWarning, match="is ignored: it is another user's"):
        assert spec_file.load() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert spec_file.load() is None  # said once
        assert anyshape.compile(lambda x: x, backend="eager").declared_in is None
    nearer = write(project, GOOD)  # what lies further up is not hidden by it
    monkeypatch.undo()
    monkeypatch.chdir(project / "package" / "inner")
    path.chmod(0o666)
    assert spec_file.find() == nearer.resolve()


def test_a_file_that_is_exchanged_after_it_was_found(project, monkeypatch):
    path = write(project / "package" / "inner", GOOD)
    found = spec_file.find()
    monkeypatch.setattr(spec_file, "find", lambda start=None: found)
    path.unlink()
    assert spec_file.load() is None
    path.write_text('["m:f"]')
    path.chmod(0o666)
    with pytest.warns(DeclarationWarning):
        assert spec_file.load() is None


def test_a_file_that_is_named_is_meant(project, monkeypatch):
    path = write(project.parent, GOOD)
    path.chmod(0o666)
    monkeypatch.setenv("ANYSHAPE_SPEC", str(path))
    assert spec_file.load().path == path


def test_which_file_is_in_force_is_shown(project, monkeypatch):
    (project / ".git").mkdir()
    path = write(project, f'["{__name__}:declared"]\nshapes = {{ x = "n" }}\n').resolve()
    f = anyshape.compile(declared, backend="eager")
    assert f.declared_in == anyshape.explain(f).declared_in == str(path)
    assert f"declared in {path}" in str(anyshape.explain(f)) and anyshape.explain(f).json()["declared_in"] == str(path)
    assert anyshape.compile(lambda x: x, backend="eager").declared_in is None


def declared(x):
    return x + 1


# -- reading is linear, and ends -------------------------------------------------------------------------------------

HOSTILE = {
    "a key of very many parts": "a." * 100_000 + "a = 1",
    "many keys of many parts": "\n".join(f"{'b.' * 65}c{i} = 1" for i in range(1000)),
    "a header of very many parts": "[" + "a." * 100_000 + "a]",
    "deep lists": "x = " + "[" * 50_000,
    "deep lists that end": "x = " + "[" * 5_000 + "]" * 5_000,
    "deep tables": "x = " + "{a=" * 5_000,
    "a number of very many digits": "x = " + "9" * 100_000,
    "very many tables": "".join(f'["m{i}:f"]\nshapes = {{ x = "n" }}\n' for i in range(2000)) + "x",
    "very many options": '["m:f"]\n' + "".join(f"o{i} = 1\n" for i in range(20_000)),
    "a very long option": '["m:f"]\n' + "o" * 500_000 + " = 1",
    "a very long shape": '["m:f"]\nshapes.x = "' + "n " * 100_000 + '"',
    "a very long clause": '["m:f"]\nwhere = ["' + "n + " * 20_000 + 'n > 3"]',
    "a deep clause": '["m:f"]\nwhere = ["' + "(" * 20_000 + 'n > 3"]',
    "a very long text": '["m:f"]\nbackend = "' + "\\u0041" * 100_000,
    "an escape": '["m:f"]\n"\\u001b[2J" = 1',
    "a byte order mark": "\ufeffx = 1",
    "controls": "x = 1\x00\x1b",
    "larger than any": "#" * (spec_file.MOST_BYTES + 1),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("how", list(HOSTILE))
def test_a_hostile_file_is_refused_in_time(tmp_path, how):
    path = tmp_path / "anyshape.toml"
    path.write_text(HOSTILE[how], encoding="utf-8")
    began = time.process_time()
    with pytest.raises(DeclarationError) as caught:
        spec_file.read(path)
    assert time.process_time() - began < 5
    assert all(c.isprintable() or c in "\n\t" for c in str(caught.value))


def test_a_thousand_tables_take_no_longer_than_ten_times_a_hundred(tmp_path):
    def seconds(count):
        path = tmp_path / f"{count}.toml"
        path.write_text("".join(f'["m{i}:f"]\nshapes = {{ x = "n" }}\n' for i in range(count)))
        began = time.process_time()
        assert len(spec_file.read(path).entries) == count
        return time.process_time() - began

    seconds(10)
    few, many = min(seconds(200) for _ in range(3)), min(seconds(1600) for _ in range(2))
    assert many < 3 * 8 * max(few, 0.01)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_not_read(tmp_path, make):
    make(tmp_path / "anyshape.toml")
    with pytest.raises(DeclarationError, match="cannot be read"):
        spec_file.read(tmp_path / "anyshape.toml")
    assert spec_file.find(tmp_path, {}) is None


@pytest.mark.parametrize("named", ["~nobody-of-this-name/x.toml", "x" * 5000, "a/" * 3000, "/dev/null/x", "~", "/"])
def test_a_variable_that_names_no_file(named):
    with pytest.raises(DeclarationError, match="names a file that is not there"):
        spec_file.find(environ={spec_file.VARIABLE: named})


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert spec_file.find(environ={}) is None


def test_folders_that_may_not_be_looked_into(tmp_path, monkeypatch):
    """As where a program is run by another user than the one whose folder it is started in."""
    stock = os.stat

    def stat(path, *args, **kwargs):
        if str(path).startswith(str(tmp_path / "a")) and str(path) != str(tmp_path / "a"):
            raise PermissionError(13, "Permission denied", str(path))
        return stock(path, *args, **kwargs)

    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    monkeypatch.setattr(os, "stat", stat)
    assert spec_file.find(environ={}) is None


@pytest.mark.parametrize("name", ["+", "+:]", ":", "...", "-", " ", "", "é:+", "\\u0000", "\\u202e"])
def test_a_table_whose_name_is_no_name(tmp_path, name):
    (tmp_path / "anyshape.toml").write_text(f'["{name}"]\ncompile = true\n')
    with pytest.raises(DeclarationError):
        spec_file.read(tmp_path / "anyshape.toml")
