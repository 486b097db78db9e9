"""Files that somebody made to harm: by where they are, by races, by what they are, by what they say of themselves.

No code of theirs runs, nothing waits for them or grows with them, and what is shown of them is text. Nothing here needs
torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import socket
import stat
import struct
import sys
from collections.abc import Callable
from typing import Any

import corruptions
import pytest
from commands import run
from test_trust import HERE, KEY, example

from anyshape import errors, plain_text
from anyshape.artifact import container, inspecting, manifest, opening, storage, trust
from anyshape.errors import ArtifactError, Error
from anyshape.foundation import local_files

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners and modes are those of POSIX")


def named(name: str) -> bytes:
    facts = {
        "warning": "code", "name": name, "key": "k", "environment": HERE, "source": {}, "declaration": {},
        "weights": "live", "programs": [{"behavior": "every size"}],
    }  # fmt: skip
    return container.pack(facts, {"programs/0/state.pkl": name.encode()})


GOOD, EVIL = named("good"), named("evil")


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder of folders: `trusted` is closed and named in the variable, `public` is where anybody may write."""
    for name, mode in (("trusted", 0o755), ("trusted/inner", 0o755), ("public", 0o777), ("trusted2", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    for name, data in (("trusted/good.any", GOOD), ("trusted/inner/good.any", GOOD), ("public/evil.any", EVIL)):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(0o644)
    (tmp_path / "trusted2" / "evil.any").write_bytes(EVIL)
    monkeypatch.setenv(trust.VARIABLE, str(tmp_path / "trusted"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded(url: str | os.PathLike[str]) -> str | None:
    """The name of the file whose code would run now; None where none would."""
    try:
        return str(opening.open_file(url, here=HERE).manifest["name"])
    except ArtifactError as error:
        assert error.code in ("AS050", "AS053"), error
        return None


# -- where a file is -------------------------------------------------------------------------------------------------

TRUSTED: list[str] = [
    "{here}/trusted/good.any",
    "{here}/trusted/inner/good.any",
    "{here}/trusted/inner/../good.any",
    "{here}//trusted///good.any",
    "trusted/good.any",
    "./trusted/good.any",
    "public/../trusted/good.any",
    "file://{here}/trusted/good.any",
    "link",
    "trusted/inward",
]
UNTRUSTED: list[str] = [
    "{here}/public/evil.any",
    "{here}/trusted/../public/evil.any",
    "{here}/trusted2/evil.any",
    "{here}/trusted/outward",
    "{here}/trusted/way-out/evil.any",
    "trusted/inner/../../public/evil.any",
    "file://{here}/public/evil.any",
    "file://{here}/trusted/../public/evil.any",
    "file://public/evil.any",
    "FILE://{here}/trusted/good.any",
    "local://{here}/trusted/good.any",
    "local://{here}/public/evil.any",
    "memory://x{up}{here}/trusted/good.any",
    "memory://{here}/trusted/good.any",
    "memory:///{here}/trusted/good.any",
    "memory://file://{here}/trusted/good.any",
    "simplecache::memory://x{up}{here}/trusted/good.any",
    "simplecache::file://{here}/public/evil.any",
    "blockcache::memory://x{up}{here}/trusted/good.any",
    "filecache::memory://{here}/trusted/good.any",
    "zip://good.any::memory://x{up}{here}/trusted/good.any",
    "nosuch://x{up}{here}/trusted/good.any",
    "://{here}/trusted/good.any",
    "{here}/trusted/good.any\0.any",
    "{here}/trusted/\ud800",
    "{here}/trusted",
    "{here}/trusted/",
    "~/good.any",
    "",
]


@pytest.mark.parametrize("form", TRUSTED)
def test_a_file_in_a_trusted_directory_is_loaded(place: pathlib.Path, form: str) -> None:
    (place / "link").symlink_to(place / "trusted" / "good.any")
    (place / "trusted" / "inward").symlink_to("inner/good.any")
    assert loaded(form.format(here=place)) == "good"


@pytest.mark.parametrize("form", UNTRUSTED)
def test_what_is_not_a_local_file_there_is_not(place: pathlib.Path, form: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    (place / "trusted" / "outward").symlink_to(place / "public" / "evil.any")
    (place / "trusted" / "way-out").symlink_to(place / "public")
    up = "/.." * 20
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for url in ("memory://x{up}{here}/trusted/good.any", "memory://{here}/trusted/good.any"):
        with memory.open(fsspec.core.url_to_fs(url.format(here=place, up=up))[1], "wb") as file:
            file.write(EVIL)
    assert loaded(form.format(here=place, up=up)) is None


@pytest.mark.parametrize("entry", [".", "..", "trusted", "./trusted", "", ":", "~", "\0", "nowhere", "/nowhere"])
def test_a_directory_is_trusted_by_its_whole_path(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    if "\0" in entry:
        with pytest.raises(ValueError):
            monkeypatch.setenv(trust.VARIABLE, entry)
        return
    monkeypatch.setenv(trust.VARIABLE, entry)
    assert loaded("trusted/good.any") is None
    if entry == ".":
        with pytest.raises(ArtifactError, match="not a whole path"):
            opening.open_file("trusted/good.any", here=HERE)
    monkeypatch.setenv(trust.VARIABLE, f"{entry}:{place / 'trusted'}")
    assert loaded("trusted/good.any") == "good"


def test_a_directory_may_be_named_by_a_link_of_its_user(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "alias").symlink_to(place / "trusted")
    monkeypatch.setenv(trust.VARIABLE, str(place / "alias"))
    assert loaded("trusted/good.any") == loaded("alias/good.any") == "good"
    monkeypatch.setenv(trust.VARIABLE, str(place / "trusted" / "good.any"))
    assert loaded("trusted/good.any") is None


OPEN: list[tuple[str, int, bool]] = [
    ("trusted/inner/good.any", 0o644, True),
    ("trusted/inner/good.any", 0o600, True),
    ("trusted/inner/good.any", 0o664, False),
    ("trusted/inner/good.any", 0o646, False),
    ("trusted/inner", 0o700, True),
    ("trusted/inner", 0o775, False),
    ("trusted/inner", 0o757, False),
    ("trusted/inner", 0o1777, False),
    ("trusted", 0o775, False),
    ("trusted", 0o1777, False),
    (".", 0o755, True),
    (".", 0o1777, True),  # as /tmp: what is mine there stays where it is
    (".", 0o777, False),
    (".", 0o775, False),
]


@pytest.mark.parametrize(("name", "mode", "trusted"), OPEN)
def test_each_step_of_the_way_is_closed_to_others(place: pathlib.Path, name: str, mode: int, trusted: bool) -> None:
    (place / name).chmod(mode)
    try:
        assert loaded("trusted/inner/good.any") == ("good" if trusted else None)
    finally:
        (place / name).chmod(0o755)


@pytest.mark.parametrize("name", ["trusted/inner/good.any", "trusted/inner", "trusted", "."])
def test_each_step_of_the_way_is_this_users(place: pathlib.Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by the open descriptor: of one step the system says that it is another's."""
    foreign = (place / name).stat()
    stock = os.fstat

    def fstat(handle: int) -> Any:
        found = stock(handle)
        if (found.st_dev, found.st_ino) != (foreign.st_dev, foreign.st_ino):
            return found
        return os.stat_result([*found[:4], os.getuid() + 4242, *found[5:10]])

    assert loaded("trusted/inner/good.any") == "good"
    monkeypatch.setattr(os, "fstat", fstat)
    assert loaded("trusted/inner/good.any") is None


# -- races -----------------------------------------------------------------------------------------------------------


def _relink(name: str, to: str) -> Callable[[pathlib.Path], None]:
    def act(place: pathlib.Path) -> None:
        target = place / name
        if target.is_dir() and not target.is_symlink():
            os.rename(target, place / "public" / "moved")
        made = place / "public" / "made"
        made.symlink_to(place / to)
        os.replace(made, target)

    return act


def _put(name: str, data: bytes) -> Callable[[pathlib.Path], None]:
    return lambda place: (place / name).write_bytes(data) and None


RACES: dict[str, Callable[[pathlib.Path], Any]] = {
    "the link that was given": _relink("link", "public/evil.any"),
    "the file, for a link": _relink("trusted/inner/good.any", "public/evil.any"),
    "its folder, for a link": _relink("trusted/inner", "public"),
    "the trusted folder, for a link": _relink("trusted", "public"),
    "the file is gone": lambda place: (place / "trusted/inner/good.any").unlink(),
    "its folder is gone": lambda place: os.rename(place / "trusted/inner", place / "public/inner"),
    "the folder is opened to others": lambda place: (place / "trusted/inner").chmod(0o777),
    "the file is opened to others": lambda place: (place / "trusted/inner/good.any").chmod(0o666),
}
MOMENTS = ("realpath", "open", "fstat", "read")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("race", list(RACES))
def test_a_name_that_changes_meanwhile_gets_nothing_run(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, race: str, moment: str
) -> None:
    """At every single call to the system, the n-th for each n, the attacker acts just after it."""
    for nth in range(40):
        for folder in ("trusted/inner", "public/inner", "public/moved"):  # as at the beginning
            path = place / folder
            if path.is_symlink():
                path.unlink()
        with monkeypatch.context() as patched:
            here = place / f"run-{nth}"
            for name in ("trusted/inner", "public"):
                (here / name).mkdir(parents=True, mode=0o755)
            (here / "trusted/inner/good.any").write_bytes(GOOD)
            (here / "trusted/good.any").write_bytes(EVIL)
            (here / "trusted/good.any").chmod(0o666)
            (here / "public/evil.any").write_bytes(EVIL)
            (here / "public/good.any").write_bytes(EVIL)
            (here / "link").symlink_to(here / "trusted/inner/good.any")
            for path in (here / "public").iterdir():
                path.chmod(0o666)
            (here / "public").chmod(0o777)
            patched.setenv(trust.VARIABLE, str(here / "trusted"))
            acted = _acting_after(patched, moment, nth, lambda here=here: RACES[race](here))
            name = loaded(here / "link")
        assert name in (None, "good"), (race, moment, nth)
        if not acted:
            assert nth > 0 and name == "good"
            return
    raise AssertionError("there is no end of calls")


def _acting_after(patched: pytest.MonkeyPatch, moment: str, nth: int, act: Callable[[], Any]) -> list[bool]:
    owner = {"realpath": os.path, "open": os, "fstat": os, "read": local_files}[moment]
    name = "_drain" if moment == "read" else moment
    stock = getattr(owner, name)
    count, acted, busy = [0], [], [False]

    def call(*args: Any, **kwargs: Any) -> Any:
        if busy[0]:
            return stock(*args, **kwargs)
        found = None if moment == "read" else stock(*args, **kwargs)
        if count[0] == nth:
            busy[0] = True
            try:
                act()
            finally:
                busy[0] = False
            acted.append(True)
        count[0] += 1
        return stock(*args, **kwargs) if moment == "read" else found

    patched.setattr(owner, name, call)
    return acted


# -- what a file is --------------------------------------------------------------------------------------------------


def _fifo(path: pathlib.Path) -> None:
    os.mkfifo(path)


def _socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # beside the working directory: such names are short


def _sparse(size: int) -> Callable[[pathlib.Path], None]:
    def make(path: pathlib.Path) -> None:
        path.touch()
        os.truncate(path, size)

    return make


def _link(to: str) -> Callable[[pathlib.Path], None]:
    return lambda path: path.symlink_to(to)


SPECIAL: dict[str, tuple[Callable[[pathlib.Path], Any], str]] = {
    "a FIFO": (_fifo, "AS050"),
    "a link to a FIFO": (lambda path: (_fifo(path.with_name("fifo")), path.symlink_to("fifo")), "AS050"),
    "a socket": (_socket, "AS050"),
    "/dev/zero": (_link("/dev/zero"), "AS050"),
    "/dev/full": (_link("/dev/full"), "AS050"),
    "/dev/null": (_link("/dev/null"), "AS050"),
    "/dev/random": (_link("/dev/random"), "AS050"),
    "a terminal": (_link("/dev/tty"), "AS050"),
    "a file of the system that has no size": (_link("/proc/self/maps"), "AS050"),
    "a folder": (lambda path: path.mkdir(), "AS050"),
    "a link to itself": (_link("f.any"), "AS050"),
    "a dangling link": (_link("nowhere"), "AS050"),
    "nothing": (lambda path: None, "AS050"),
    "empty": (_sparse(0), "AS050"),
    "its beginning alone": (lambda path: path.write_bytes(container.MAGIC), "AS050"),
    "half of its header": (lambda path: path.write_bytes(container.MAGIC + b"\1\0\0\0"), "AS050"),
    "lengths of gigabytes": (
        lambda path: path.write_bytes(container.MAGIC + struct.pack("<III", 1, 2**32 - 1, 2**32 - 1) + bytes(64)),
        "AS050",
    ),
    "larger than any": (_sparse(container.MOST_BYTES + 1), "AS054"),
    "text": (lambda path: path.write_text("hello\n" * 100), "AS050"),
    "a zip": (lambda path: path.write_bytes(b"PK\3\4" + bytes(100)), "AS050"),
}


@pytest.mark.parametrize("kind", list(SPECIAL))
def test_what_is_no_artifact_is_refused_at_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make, code = SPECIAL[kind]
    make(tmp_path / "f.any")
    reads = (
        lambda: inspecting.inspect("f.any"),
        lambda: inspecting.verify("f.any", key=KEY),
        lambda: opening.open_file("f.any", key=KEY, here=HERE),
        lambda: opening.open_file("f.any", trusted=True, here=HERE),
    )
    for read in reads:
        with pytest.raises(ArtifactError) as caught:
            read()
        assert caught.value.code == code, caught.value


def test_a_file_that_grows_while_it_is_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.any"
    path.write_bytes(b"1234")
    stock, seen = os.fstat, []

    def fstat(handle: int) -> os.stat_result:
        seen.append(stock(handle))
        with open(path, "ab") as file:
            file.write(b"5" * 100)
        return seen[-1]

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(local_files.UnreadableError, match="changed while it was read"):
        local_files.read(str(path), most=1 << 20)


class _Endless:
    """A file system whose file says that it is small, and has no end."""

    def info(self, name: str) -> dict[str, Any]:
        return {"size": None}

    def open(self, name: str, mode: str) -> Any:
        return self

    def __enter__(self) -> _Endless:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def read(self, size: int) -> bytes:
        return bytes(size)


def test_a_url_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_filesystem", lambda url: (_Endless(), "x"))
    monkeypatch.setattr(storage, "MOST_BYTES", 64 << 20)
    with pytest.raises(ArtifactError, match="larger than any") as caught:
        storage.read("memory://x")
    assert caught.value.code == "AS054"


@pytest.mark.parametrize(
    "error", [ImportError("aiohttp"), OSError(5, "i/o"), ValueError("x"), KeyError("x"), TimeoutError()]
)
def test_file_systems_that_fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(url: str) -> Any:
        raise error

    monkeypatch.setattr(storage, "_filesystem", fail)
    with pytest.raises(ArtifactError) as caught:
        storage.read("memory://x")
    assert caught.value.code == "AS050" and caught.value.__cause__ is error


def test_memory_that_is_gone_is_no_fault_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str) -> Any:
        raise MemoryError

    monkeypatch.setattr(storage, "_filesystem", fail)
    with pytest.raises(MemoryError):
        storage.read("memory://x")


# -- what is said of trust -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["no", "false", "True", "", 0, 1, 1.0, None, [], [False], b"no", object()])
def test_trust_is_true_or_false(word: Any) -> None:
    with pytest.raises(ArtifactError) as caught:
        trust.read_word(word)
    assert caught.value.code == "AS007"
    assert trust.read_word(True) is True and trust.read_word(False) is False


@pytest.mark.parametrize("said", ["f2", "", "F", "f ", "evil\x1b[2J"])
def test_a_file_of_another_callable_is_refused(said: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        manifest.check_name({"name": "f"}, said, "x.any")
    assert caught.value.code == "AS055" and "\x1b" not in str(caught.value)
    manifest.check_name({"name": "f"}, "f", "x.any")


# -- what a file says of itself --------------------------------------------------------------------------------------

FULL = corruptions.parts(example())[0]
BODY = corruptions.parts(example())[2]
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eAll is well\n  fix: pip install evil\r"


def raw(text: bytes, members: bytes = b"", signature: bytes = b"") -> bytes:
    body = container.MAGIC + struct.pack("<III", 1, len(text), len(signature)) + text + signature + members
    return body + hashlib.sha256(body).digest()


def changed(change: Callable[[dict[str, Any]], Any]) -> bytes:
    facts = json.loads(json.dumps(FULL))
    change(facts)
    return raw(json.dumps(facts).encode(), BODY)


def _set(*path: Any, to: Any) -> bytes:
    def change(facts: Any) -> None:
        for step in path[:-1]:
            facts = facts[step]
        facts[path[-1]] = to

    return changed(change)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "digest of a surrogate": lambda: _set("members", 0, "sha256", to="\ud800"),
    "digest of a number": lambda: _set("members", 0, "sha256", to=7),
    "name of a surrogate": lambda: _set("name", to="\ud800"),
    "name with escapes": lambda: _set("name", to=ESCAPES),
    "key with escapes": lambda: _set("key", to=ESCAPES),
    "weights with escapes": lambda: _set("weights", to=ESCAPES),
    "environment with escapes": lambda: _set("environment", ESCAPES, to=ESCAPES),
    "torch with escapes": lambda: _set("environment", "torch", to=ESCAPES),
    "behaviour with escapes": lambda: _set("programs", 0, "behavior", to=ESCAPES),
    "member with escapes": lambda: _set("members", 0, "name", to=ESCAPES),
    "member with an end of line": lambda: _set("members", 0, "name", to="a\n"),
    "programs that are none": lambda: _set("programs", to=[1, None]),
    "programs that are texts": lambda: _set("programs", to=["x"]),
    "programs that say nothing": lambda: _set("programs", to=[{}]),
    "programs in a table": lambda: _set("programs", to={"0": {}}),
    "predicates that say nothing": lambda: _set("programs", 0, "predicates", to=[{}]),
    "predicates that are no list": lambda: _set("programs", 0, "predicates", to="x"),
    "predicates at no line": lambda: _set("programs", 0, "predicates", to=[{"text": "x", "file": "y", "line": "z"}]),
    "requirements that are numbers": lambda: _set("programs", 0, "requirements", to=[1]),
    "variants that are none": lambda: _set("programs", 0, "variants", to=[None]),
    "no warning": lambda: changed(lambda facts: facts.pop("warning")),
    "no environment": lambda: changed(lambda facts: facts.pop("environment")),
    "an environment of lists": lambda: _set("environment", to={"torch": [1], "python": {}, "device": 7}),
    "weights of its own": lambda: _set("weights", to="elsewhere"),
    "NaN": lambda: raw(json.dumps({**FULL, "x": float("nan")}).encode(), BODY),
    "Infinity": lambda: raw(json.dumps({**FULL, "x": float("inf")}).encode(), BODY),
    "a number of a megabyte": lambda: raw(b'{"members":[],"x":' + b"9" * 1_000_000 + b"}"),
    "deep": lambda: raw(b'{"members":' + b"[" * 1_000_000),
    "deep and whole": lambda: raw(b'{"members":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a list": lambda: raw(b"[]"),
    "nothing": lambda: raw(b""),
    "UTF-16": lambda: raw(json.dumps(FULL).encode("utf-16"), BODY),
    "no text": lambda: raw(b"\xff\xfe\xfd"),
    "a name that is there twice": lambda: raw(json.dumps(FULL).encode()[:-1] + b',"members":[]}', BODY),
    "members by the thousand": lambda: raw(
        json.dumps({**FULL, "members": [{"name": "a", "bytes": 0, "sha256": ""}] * 100_001}).encode()
    ),
    "a length that is a word": lambda: _set("members", 0, "bytes", to=True),
    "a length of 1e400": lambda: raw(json.dumps(FULL).encode().replace(b'"bytes": 300', b'"bytes": 1e400'), BODY),
}


def shows(text: str) -> bool:
    """Whether a terminal would only show it."""
    return all(c.isprintable() or c in "\n\t" for c in text)


@pytest.mark.parametrize("how", list(HOSTILE))
def test_a_hostile_manifest_is_refused_or_shown(tmp_path: pathlib.Path, how: str) -> None:
    path = tmp_path / "f.any"
    path.write_bytes(HOSTILE[how]())
    for command in (["inspect"], ["verify", "--anywhere"], ["inspect", "--json", str(tmp_path / "f.json")]):
        ran = run(command[0], str(path), *command[1:])
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            assert isinstance(ran.exception, Error), ran.exception
            assert shows(str(ran.exception)) and "\n  fix: pip" not in str(ran.exception)
        assert shows(ran.output) and "\n  fix: pip" not in ran.output
        ran.output.encode()
    if "escapes" not in how and how not in ("no warning", "name of a surrogate", "an environment of lists"):
        with pytest.raises(ArtifactError):
            inspecting.verify(str(path))


@pytest.mark.parametrize("how", list(HOSTILE))
def test_a_hostile_manifest_is_no_trouble_to_load(how: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        contents = opening.open_bytes(HOSTILE[how](), where="x.any", trusted=True, here=HERE)
        manifest.check_name(contents.manifest, "f2", "x.any")
    assert shows(str(caught.value))


@pytest.mark.parametrize("kind", [ArtifactError, errors.DeclarationError, errors.Error])
def test_an_error_shows_text_of_others_as_text(kind: type[Error]) -> None:
    text = str(kind(ESCAPES, where=ESCAPES, value=ESCAPES, before=ESCAPES, fix=ESCAPES))
    assert shows(text) and r"\x1b[2J" in text and r"\u202e" in text


def test_text_of_others_is_a_line_and_not_a_long_one() -> None:
    assert plain_text.line("a\nb\x1b") == "a\\nb\\x1b" and plain_text.line("é 漢") == "é 漢"
    assert len(plain_text.line("x" * 10_000)) == 400
    assert plain_text.lines("a\nb\tc\x00") == "a\nb\tc\\x00"


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["nosuch://x", "http://localhost:1/x", "zip://a::nosuch://b", "s3://x/y", "::", "a\0b", "github://x"]
)
def test_places_that_cannot_be_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("aiohttp", "s3fs", "requests"):
        monkeypatch.setitem(sys.modules, module, None)  # nothing here goes out
    for command in ("inspect", "verify"):
        ran = run(command, url)
        assert isinstance(ran.exception, Error), ran.exception


@pytest.mark.parametrize("where", ["nowhere/report.json", ".", "f.any/report.json"])
def test_a_report_that_cannot_be_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.any").write_bytes(GOOD)
    (tmp_path / "trace").mkdir()
    (tmp_path / "script.py").write_text("open('ran', 'w')")
    for command in (
        ["inspect", "f.any", "--json"],
        ["doctor", "--from", "trace", "--json"],
        ["doctor", "--from", "trace", "--html"],
    ):
        ran = run(*command, where)
        assert isinstance(ran.exception, Error) and ran.exception.code in ("AS061", "AS060"), ran.exception
    ran = run("doctor", "--json", where, "script.py")
    assert isinstance(ran.exception, errors.FileError)
    assert not (tmp_path / "ran").exists()  # said before the program runs for an hour
    assert not stat.S_ISREG((tmp_path / where).stat().st_mode) if where == "." else not (tmp_path / where).exists()
