"""A file of programs is loaded whole, by the right one, or not at all. Nothing here needs torch."""

from __future__ import annotations

import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import corruptions
import pytest

import anyshape
from anyshape.artifact import container, inspecting, opening, storage, trust
from anyshape.errors import ArtifactError

KEY = b"a secret of thirty-two bytes ..."
HERE = {n: f"{n} 1" for n in ("anyshape", "torch", "python", "platform", "cpu", "device")}


def example(*, environment: dict[str, str] = HERE, key: bytes | None = KEY, members: int = 4) -> bytes:
    rng = random.Random(0)
    manifest = {
        "warning": "code", "name": "f", "key": "k" * 64, "environment": environment, "source": {"f": "abc"},
        "declaration": {}, "weights": "live", "programs": [{"behavior": "every size"}],
    }  # fmt: skip
    data = {f"programs/{i}/part.bin": rng.randbytes(300 + 100 * i) for i in range(members)}
    return container.pack(manifest, data, sign=trust.signer(key))


def opened(data: bytes, *, key: bytes | None = KEY, trusted: bool = False) -> container.Contents:
    return opening.open_bytes(data, where="x.any", key=key, trusted=trusted, here=HERE)


def refused(code: str, act: Callable[[], object]) -> str:
    with pytest.raises(ArtifactError) as caught:
        act()
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


def test_what_was_packed_is_there() -> None:
    contents = opened(example())
    assert list(contents.members) == [f"programs/{i}/part.bin" for i in range(4)]
    assert bytes(contents.members["programs/0/part.bin"]) == random.Random(0).randbytes(300)
    assert example() == example()


def refusals(count: int, seed: int) -> dict[str, set[str]]:
    data, found = example(), {}
    for how, spoilt in corruptions.corruptions(data, KEY, count=count, seed=seed):
        assert spoilt != data, how
        with pytest.raises(ArtifactError) as caught:
            opened(spoilt)
        found.setdefault(how, set()).add(caught.value.code)
    return found


def test_a_hundred_corruptions_are_refused() -> None:
    codes = refusals(110, seed=1)
    assert codes["truncate"] <= {"AS050"} and codes["extend"] == {"AS050"}
    assert codes["wrong_key"] == codes["unsigned"] == codes["swapped_members"] == {"AS053"}
    assert codes["replayed_manifest"] == {"AS050"}
    assert codes["renamed"] == codes["oversized"] == codes["linked"] == codes["doubled"] == {"AS054"}
    assert codes["other_environment"] == {"AS051"} and codes["newer"] == {"AS052"} and codes["formless"] == {"AS050"}


@pytest.mark.slow
def test_a_hundred_thousand_corruptions_are_refused() -> None:
    refusals(100_000, seed=2)


def test_every_single_bit_counts() -> None:
    data = example(members=1)
    for at in range(len(data)):
        for bit in (0, 7):
            with pytest.raises(ArtifactError):
                opened(data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :])


def test_a_file_without_a_signature_needs_a_word(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = example(key=None)
    assert "it is not signed" in refused("AS053", lambda: opened(data, key=None))
    assert opened(data, key=None, trusted=True).signature == b""
    refused("AS053", lambda: opened(data))  # a key was given, so it has to be signed with it
    assert "no key was given" in refused("AS053", lambda: opened(example(), key=None))
    path = tmp_path / "here" / "f.any"
    storage.write(path, data)
    load = lambda: opening.open_file(path, here=HERE)
    refused("AS053", load)
    path.parent.chmod(0o755)
    monkeypatch.setenv(trust.VARIABLE, str(path.parent))
    load()
    path.parent.chmod(0o777)
    refused("AS053", load)  # anybody might have put it there
    path.parent.chmod(0o755)
    monkeypatch.setenv(trust.VARIABLE, str(tmp_path / "elsewhere"))
    refused("AS053", load)


def test_a_link_out_of_a_trusted_directory_is_not_trusted(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write(tmp_path / "outside.any", example(key=None))
    trusted = tmp_path / "trusted"
    trusted.mkdir(mode=0o755)
    (trusted / "f.any").symlink_to(tmp_path / "outside.any")
    monkeypatch.setenv(trust.VARIABLE, str(trusted))
    refused("AS053", lambda: opening.open_file(trusted / "f.any", here=HERE))


def test_keys() -> None:
    refused("AS007", lambda: trust.signer(b"short"))
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    data = example(key=private)  # type: ignore[arg-type]
    assert opened(data, key=private.public_key()).members
    refused("AS053", lambda: opened(data, key=other.public_key()))
    refused("AS053", lambda: opened(data, key=KEY))
    refused("AS053", lambda: opened(example(), key=private.public_key()))
    refused("AS007", lambda: trust.signer("text"))


def test_a_file_for_something_else_is_named(tmp_path: pathlib.Path) -> None:
    text = refused("AS051", lambda: opened(example(environment={**HERE, "torch": "torch 0"})))
    assert "made for another torch" in text and "torch here is torch 1 (before: made for torch 0)" in text


def test_no_code_of_a_refused_file_runs(tmp_path: pathlib.Path) -> None:
    """A pickle that leaves a trace, in a file that is signed by somebody else."""

    class Bomb:
        def __reduce__(self) -> object:
            return os.mkdir, (str(tmp_path / "ran"),)

    manifest = dict(opened(example()).manifest)
    manifest.pop("members")
    data = container.pack(manifest, {"programs/0/state.pkl": pickle.dumps(Bomb())}, sign=trust.signer(b"x" * 16))
    refused("AS053", lambda: opened(data))
    refused("AS053", lambda: opened(data, key=None))
    storage.write(tmp_path / "f.any", data)
    assert inspecting.inspect(str(tmp_path / "f.any"))["signature"] == "hmac-sha256"
    refused("AS053", lambda: inspecting.verify(str(tmp_path / "f.any"), key=KEY))
    assert not (tmp_path / "ran").exists()


def test_inspecting_and_verifying(tmp_path: pathlib.Path) -> None:
    url = str(tmp_path / "f.any")
    storage.write(url, example())
    text = inspecting.text(inspecting.inspect(url))
    assert "holds" not in text.splitlines()[0] and "program 0: every size" in text and "programs/3/part.bin" in text
    assert inspecting.verify(url, key=KEY)["signature"] == "hmac-sha256, checked"
    assert inspecting.verify(url)["signature"] == "hmac-sha256, not checked: no key"
    refused("AS051", lambda: inspecting.verify(url, here={**HERE, "cpu": "other"}))


def test_a_file_that_is_not_there(tmp_path: pathlib.Path) -> None:
    refused("AS050", lambda: opening.open_file(tmp_path / "none.any", here=HERE))
    refused("AS050", lambda: opening.open_file(tmp_path, here=HERE))
    (tmp_path / "empty.any").touch()
    refused("AS050", lambda: opening.open_file(tmp_path / "empty.any", here=HERE))


def test_urls() -> None:
    storage.write("memory://artifacts/f.any", example())
    storage.write("memory://artifacts/f.any", example(members=2))
    assert len(opening.open_file("memory://artifacts/f.any", key=KEY, here=HERE).members) == 2
    assert storage.exists("memory://artifacts/f.any") and not storage.exists("memory://artifacts/g.any")
    refused("AS050", lambda: opening.open_file("memory://artifacts/g.any", key=KEY, here=HERE))


def test_a_failed_save_leaves_the_old_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.any"
    storage.write(path, b"old")
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(OSError):
        storage.write(path, b"new")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["f.any"]


# The package without its index, which imports torch: a writer needs none.
WRITER = """
import sys, types
package = types.ModuleType("anyshape")
package.__path__ = [sys.argv[4]]
sys.modules["anyshape"] = package
from anyshape.artifact import storage
data = [open(p, "rb").read() for p in sys.argv[2:4]]
print("ready", flush=True)
while True:
    for d in data:
        storage.write(sys.argv[1], d)
"""


def kill_writers(tmp_path: pathlib.Path, moments: int) -> None:
    """Kill a process that saves all the time, at random moments; the file is one of the two every time."""
    target = tmp_path / "f.any"
    versions = [example(members=2), example(members=40)]
    for i, data in enumerate(versions):
        (tmp_path / f"{i}.src").write_bytes(data)
    storage.write(target, versions[0])
    rng, seen = random.Random(0), set()
    package = str(pathlib.Path(anyshape.__file__).parent)
    command = [sys.executable, "-c", WRITER, str(target), str(tmp_path / "0.src"), str(tmp_path / "1.src"), package]
    for _ in range(moments):
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        data = target.read_bytes()
        assert len(opened(data).members) in (2, 40)
        seen.add(len(data))
    assert moments < 20 or len(seen) == 2  # both were there at some moment


def test_a_killed_save_leaves_the_old_file_or_the_new_one(tmp_path: pathlib.Path) -> None:
    kill_writers(tmp_path, 5)


@pytest.mark.slow
def test_fifty_killed_saves_leave_the_old_file_or_the_new_one(tmp_path: pathlib.Path) -> None:
    kill_writers(tmp_path, 50)


def test_what_killed_writers_left_is_swept_away(tmp_path: pathlib.Path) -> None:
    for name, age in (("old", 2 * 24 * 3600), ("new", 60)):
        left = tmp_path / f".f.any.{name}.tmp"
        left.touch()
        os.utime(left, (time.time() - age,) * 2)
    storage.write(tmp_path / "f.any", b"data")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".f.any.new.tmp", "f.any"]
