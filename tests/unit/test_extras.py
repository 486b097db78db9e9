"""Only torch: what works without any optional package, and what names the extra that it needs."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import test_layers

SOURCE = pathlib.Path(__file__).parents[2] / "src"
# Everything optional, and what comes with it. torch brings jinja2 and fsspec, and gets them: only anyshape does not.
_TORCHS = ("jinja2", "fsspec")
_BLOCKED = (*test_layers.OPTIONAL, "click", "pygments", "numpy", "scipy", "transformers", "expecttest", "yaml")
_BLOCKER = f"""
import sys
class Hiding:
    names = {_BLOCKED!r}
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        package = name.split(".")[0]
        if package in self.names and (package not in {_TORCHS!r} or self.asked_by().startswith(("anyshape", "__main__"))):
            return None
        return self.finder.find_spec(name, path, target)
    def asked_by(self):
        frame = sys._getframe(2)
        while "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame.f_globals.get("__name__", "")
for name in [m for m in sys.modules if m.split(".")[0] in Hiding.names]:
    del sys.modules[name]
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""


def without_extras(code: str) -> str:
    """What a program prints where only torch is installed."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    program = _BLOCKER + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_blocker_blocks() -> None:
    assert "blocked" in without_extras(
        """
        for name in Hiding.names:
            try:
                __import__(name)
            except ImportError:
                continue
            raise SystemExit(f"{name} came through")
        print("blocked")
        """
    )


def test_compiling_checking_and_saving_need_torch_alone(tmp_path: pathlib.Path) -> None:
    printed = without_extras(
        f"""
        import torch, anyshape
        from anyshape.testing import assert_any_shape, expect_programs

        def head(x):
            return x * 2 if x.shape[0] > 8 else x + 1

        f = anyshape.compile(head, backend="aot_eager")
        with expect_programs(2):
            for n in (3, 12, 1, 0, 30):
                assert torch.equal(f(torch.ones(n)), head(torch.ones(n)))
        anyshape.explain(f).print()
        g = anyshape.compile(
            lambda x: x.sum(0), backend="aot_eager", shapes={{"x": "batch seq 4"}},
            where=["1 <= batch <= 64", "seq % 8 == 0"], hints={{"batch": 16}}, specialize="never",
        )
        g(torch.ones(2, 8, 4)), g(torch.ones(1, 16, 4))
        assert len(g.programs) == 1 and not g.fallbacks
        for bad in (torch.ones(2, 7, 4), torch.ones(65, 8, 4)):
            try:
                g(bad)
            except anyshape.InvariantError:
                pass
            else:
                raise SystemExit("an invariant was not checked")
        try:
            anyshape.compile(head, shapes={{"x": "n"}}, where=["n >= 5", "n <= 3"])
        except anyshape.DeclarationError as error:
            print(error.code)
        assert_any_shape(torch.relu, lambda n: torch.randn(n, 4), backend="eager")
        with anyshape.observe() as seen:
            f(torch.ones(5))
        print(seen.report.headline)
        with torch.no_grad():
            artifact = anyshape.precompile(torch.nn.Linear(4, 2), (torch.ones(3, 4),))
        artifact.save({str(tmp_path / "f.any")!r})
        print(len(anyshape.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),)).graph.nodes) > 0)
        """
    )
    assert "2 programs, 5 calls" in printed and "AS012" in printed and (tmp_path / "f.any").is_file()


def test_the_command_line_needs_torch_alone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "job.py").write_text(
        "import torch\nf = torch.compile(lambda x: x + 1, backend='eager')\nfor n in (2, 3, 4): f(torch.ones(n))\n"
    )
    printed = without_extras(
        f"""
        import os
        from anyshape import cli
        os.chdir({str(tmp_path)!r})
        assert cli.run(["help", "AS020"]) == 0 and cli.run(["--version"]) == 0
        assert cli.run(["doctor", "--no-live", "job.py"]) == 0
        assert cli.run(["run", "job.py"]) == 0
        """
    )
    assert printed.startswith("# AS020")


def test_what_needs_an_extra_names_it() -> None:
    calls = {
        "anyshape.check(f)": "solver",
        "anyshape.load('memory://f.any', trust=True)": "urls",
        "cli.run(['fuzz'])": "fuzz",
        "anyshape.precompile(torch.nn.Linear(4, 2), (torch.ones(3, 4),), weights='embed')": "weights",
    }
    printed = without_extras(
        f"""
        import torch, anyshape
        from anyshape import cli

        def head(x, y):
            return x + 1 if x.shape[0] * y.shape[0] > 8 else x - 1

        f = anyshape.compile(head, backend="eager", shapes={{"x": "n", "y": "m"}})
        f(torch.ones(3), torch.ones(2)), f(torch.ones(30), torch.ones(2))
        for call in {list(calls)!r}:
            try:
                eval(call)
            except anyshape.MissingDependencyError as error:
                print(error.fix)
        """
    )
    assert printed.splitlines() == [f'pip install "anyshape[{extra}]"' for extra in calls.values()]
