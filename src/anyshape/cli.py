"""The command line: `anyshape ...`, the same as `python -m anyshape ...`.

Owns the commands, their options and what their help says, and turns an `anyshape.Error` into a message and an exit
status. What a command does is in the module it is named after, which is imported when it runs: help waits for nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from anyshape._version import __version__
from anyshape.errors import Error, NotCompilableError, require
from anyshape.foundation import local_files

Command = Callable[[argparse.Namespace], int]
_BACKEND: Final = "The backend that compiles the captured graphs, as in torch.compile."


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Text as it was written, and options with room for a sentence beside them."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=110)


class Parser(argparse.ArgumentParser):
    """A parser of one command; with `rest`, what follows the first word that is not its option belongs to a program."""

    rest: str | None = None
    rest_begins_after: tuple[str, ...] = ()  # options that name the program themselves

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        if self.rest is None:
            return super().parse_known_args(args, namespace)
        own, rest = self._split(list(args or ()))
        found, unknown = super().parse_known_args(own, namespace)
        setattr(found, self.rest, rest)
        return found, unknown

    def _split(self, words: list[str]) -> tuple[list[str], list[str]]:
        named = False
        index = 0
        while index < len(words):
            word = words[index]
            if word == "--":
                return words[:index], words[index + 1 :]
            action = self._option_string_actions.get(word.split("=", 1)[0])
            if not word.startswith("-") or word == "-" or (named and action is None):
                break
            named = named or word.split("=", 1)[0] in self.rest_begins_after
            index += 2 if action is not None and action.nargs is None and "=" not in word else 1
        return words[:index], words[index:]


def build() -> Parser:
    """The parser of all commands; each puts its function into `command`."""
    parser = Parser(
        prog="anyshape",
        description="Compile once. Exactly eager, for every shape.\n\n"
        "anyshape is a drop-in for torch.compile whose programs serve every size.",
        epilog="Begin with:\n  anyshape demo\n  anyshape doctor train.py",
        formatter_class=_Layout,
    )
    parser.add_argument("--version", action="store_true", help="Print the versions of anyshape and torch.")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in (_demo, _run, _doctor, _precompile, _inspect, _verify, _fuzz, _repairs, _help):
        add(commands)
    return parser


def _add(commands: Any, name: str, command: Command, *, line: str, text: str, example: str) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=line,
        description=f"{line}\n\n{text}",
        epilog="Example:\n" + "\n".join(f"  {e}" for e in example.splitlines()),
        formatter_class=_Layout,
        allow_abbrev=False,
    )
    parser.set_defaults(command=command)
    return parser


# -- demo and run ----------------------------------------------------------------------------------------------


def _demo(commands: Any) -> None:
    parser = _add(
        commands,
        "demo",
        _do_demo,
        line="Compare anyshape with stock torch on five small programs.",
        text="Each program is called with sizes that include 0 and 1. The table shows how many programs were\n"
        "compiled, how long all calls took, and whether every result equals eager's.\n"
        "The exit status is 1 if anyshape is wrong anywhere.",
        example="anyshape demo\nanyshape demo --backend aot_eager   # needs no C++ compiler",
    )
    parser.add_argument("--backend", default="inductor", help=_BACKEND)


def _do_demo(given: argparse.Namespace) -> int:
    from anyshape import demo

    rows = demo.run(backend=given.backend)
    return int(any(r.wrong for r in rows if r.way == demo.OURS))


def _run(commands: Any) -> None:
    parser = _add(
        commands,
        "run",
        _do_run,
        line="Run a script with everything compiled that anyshape.toml names.",
        text="The script itself is not changed. What follows its name is passed on to it.",
        example="anyshape run train.py --epochs 3",
    )
    parser.usage = "anyshape run [-h] [-m] SCRIPT [ARGS]..."
    parser.add_argument("-m", dest="module", action="store_true", help="Run a module by its name, as python -m does.")
    parser.rest, parser.rest_begins_after = "program", ("-m",)


def _do_run(given: argparse.Namespace) -> int:
    if not given.program:
        fix = "anyshape run train.py"
        raise NotCompilableError(
            "there is no script to run", where="anyshape run SCRIPT", value="", fix=fix, code="AS007"
        )
    from anyshape import hooks

    hooks.run(given.program[0], given.program[1:], module=given.module)
    return 0


# -- doctor ----------------------------------------------------------------------------------------------------


def _doctor(commands: Any) -> None:
    parser = _add(
        commands,
        "doctor",
        _do_doctor,
        line="Find out why a program compiles more than once, and what to do about it.",
        text="The program is run unchanged, and may use stock torch.compile or anyshape. The report names the line,\n"
        "the argument, what it cost and the change that helps. The exit status is the program's.",
        example="anyshape doctor --verify train.py --epochs 1\nanyshape doctor --pytest tests\n"
        "anyshape doctor --html report.html --from /tmp/trace   # a folder of TORCH_TRACE; needs no torch",
    )
    parser.usage = (
        "anyshape doctor [OPTIONS] SCRIPT [ARGS]... | -m MODULE [ARGS]... | --pytest TESTS [ARGS]... | --from FOLDER"
    )
    parser.rest, parser.rest_begins_after = "program", ("-m", "--pytest")
    add = parser.add_argument
    add("-m", dest="module", metavar="MODULE", help="Run a module, as python -m does.")
    add("--pytest", dest="tests", metavar="TESTS", help="Run tests. More arguments go to pytest.")
    add("--from", dest="trace", type=pathlib.Path, metavar="FOLDER", help="Read what TORCH_TRACE wrote; run nothing.")
    add("--verify", action="store_true", help="Run again with each remedy, and compare time and results.")
    add("--write", action="store_true", help="Write the declarations that help into anyshape.toml.")
    add("--json", type=pathlib.Path, metavar="FILE", help="Write the report as JSON.")
    add("--html", type=pathlib.Path, metavar="FILE", help="Write the report as one web page.")
    add("--live", action=argparse.BooleanOptionalAction, default=True, help="Print a line for each compilation.")


def _do_doctor(given: argparse.Namespace) -> int:
    from anyshape.doctor import launch

    if given.trace is not None:
        with local_files.showing(str(given.trace)):
            return _examine(given, None)
    arguments = tuple(given.program)
    chosen: launch.Program | None = None
    if given.tests is not None:
        chosen = launch.Program("pytest", (given.tests, *arguments))
    elif given.module is not None:
        chosen = launch.Program("module", (given.module, *arguments))
    elif arguments:
        chosen = launch.Program("script", arguments)
    return _examine(given, chosen)


def _examine(given: argparse.Namespace, chosen: Any) -> int:
    from anyshape.doctor import command

    return command.examine(
        chosen,
        trace_folder=given.trace,
        verify=given.verify,
        write=given.write,
        json_file=given.json,
        html_file=given.html,
        live=given.live,
    )


# -- artifacts -------------------------------------------------------------------------------------------------


def _precompile(commands: Any) -> None:
    parser = _add(
        commands,
        "precompile",
        _do_precompile,
        line="Compile a function or module into a file that another process loads.",
        text="The process that loads the file never compiles. Example tensors are made from the declared shapes.",
        example='anyshape precompile package.module:fn --shape "x=batch seq 512" --out fn.any',
    )
    add = parser.add_argument
    add("name", help="A function, a module or a class of modules, as package.module:name.")
    add("--shape", "--shapes", dest="shapes", action="append", required=True, metavar="TEXT",
        help='The dims of an argument: "x=batch seq 512", or with a dtype "ids=batch seq:int64".')  # fmt: skip
    add("--where", action="append", default=[], metavar="CLAUSE", help='A fact about sizes: "1 <= batch <= 64".')
    add(
        "--specialize",
        action="append",
        default=[],
        metavar="CLAUSE",
        help='Sizes with code of their own: "batch == 1".',
    )
    add(
        "--call",
        dest="calls",
        action="append",
        default=[],
        metavar="SIZES",
        help='Sizes to compile for: "batch=1 seq=64".',
    )
    add("--out", required=True, metavar="URL", help="The file or URL to write.")
    add("--cover", action="store_true", help="Also compile for every other behavior that the declaration allows.")
    add("--training", action="store_true", help="Compile forward and backward. Without it, only inference.")
    add("--weights", choices=("live", "embed"), default="live", help="embed puts the parameters into the file.")
    add("--key", metavar="FILE", help="Sign the file with the secret in FILE.")


def _do_precompile(given: argparse.Namespace) -> int:
    if given.cover:
        require("z3", needed_for="--cover", extra="solver")
    if given.weights == "embed":
        require("safetensors", needed_for="--weights embed", extra="weights")
    if "://" in given.out and not given.out.startswith("file://"):
        require("fsspec", needed_for=f"--out {given.out}", extra="urls")
    from anyshape.ahead import command

    command.precompile(
        given.name,
        shapes=given.shapes,
        where=given.where,
        specialize=given.specialize,
        calls=given.calls,
        out=given.out,
        cover=given.cover,
        training=given.training,
        weights=given.weights,
        key_file=given.key,
    )
    return 0


def _inspect(commands: Any) -> None:
    parser = _add(
        commands,
        "inspect",
        _do_inspect,
        line="Show what is in a file that precompile made.",
        text="No code of the file is run, and torch is not imported.",
        example="anyshape inspect fn.any",
    )
    parser.add_argument("url", help="The file or URL.")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="Write the same as JSON.")


def _do_inspect(given: argparse.Namespace) -> int:
    from anyshape.artifact import inspecting

    with local_files.showing(given.url):
        inspecting.show(given.url, json_file=given.json)
    return 0


def _verify(commands: Any) -> None:
    parser = _add(
        commands,
        "verify",
        _do_verify,
        line="Check that a file of precompile is whole, signed, and made for this machine.",
        text="No code of the file is run. The exit status is 2 if something is wrong.",
        example="anyshape verify fn.any --key secret.key",
    )
    parser.add_argument("url", help="The file or URL.")
    parser.add_argument("--key", metavar="FILE", help="Check the signature with the secret in FILE.")
    parser.add_argument("--anywhere", action="store_true", help="Do not compare the file with this machine.")


def _do_verify(given: argparse.Namespace) -> int:
    from anyshape.ahead import command

    with local_files.showing(given.url):
        command.verify(given.url, key_file=given.key, anywhere=given.anywhere)
    return 0


# -- fuzz ------------------------------------------------------------------------------------------------------


def _fuzz(commands: Any) -> None:
    parser = _add(
        commands,
        "fuzz",
        _do_fuzz,
        line="Compare random programs with eager.",
        text="Programs and sizes are generated, and each call is compared with eager. A difference is shrunk to a\n"
        "short script. The exit status is 1 if there is one.",
        example="anyshape fuzz --programs 200 --seed 7\nanyshape fuzz --model package.module:factory\n"
        "anyshape fuzz --opinfo --only add,topk",
    )
    add = parser.add_argument
    add("--programs", type=int, default=1000, help="How many programs are generated.")
    add("--seed", type=int, default=0, help="The same seed gives the same programs.")
    add("--backend", default="aot_eager", help=_BACKEND)
    add("--compiler", default="anyshape", help="anyshape, stock:static, stock:dynamic or stock:unbacked.")
    add("--workers", type=int, default=1, help="How many processes run at a time.")
    add("--corpus", metavar="URL", help="A folder or URL for findings. A campaign continues from what is there.")
    add("--shard", metavar="0/4", help="The part that runs here. Under torchrun it is the rank's.")
    add("--timeout", type=float, default=120.0, help="Seconds that one program may take.")
    add("--shrink", type=float, default=120.0, help="Seconds for shrinking one finding.")
    add("--memory", type=float, default=24.0, help="GiB of address space for each worker; 0 for no limit.")
    add("--economy", action=argparse.BooleanOptionalAction, default=True,
        help="More programs than behaviors are a finding.")  # fmt: skip
    add("--variants", action=argparse.BooleanOptionalAction, default=False,
        help="Also compile static code for each size, and test it.")  # fmt: skip
    add("--device", default="cpu", help="cpu or cuda.")
    add("--opinfo", action=argparse.BooleanOptionalAction, default=False,
        help="Test every operator of torch's own database instead.")  # fmt: skip
    add("--only", metavar="NAMES", help="With --opinfo: names of operators, separated by commas.")
    add("--model", metavar="MODULE:FACTORY", help="Test a model of yours instead.")
    add("--numbers", action=argparse.BooleanOptionalAction, default=False,
        help="Test programs over Python ints and floats instead.")  # fmt: skip
    add("--assumptions", action=argparse.BooleanOptionalAction, default=False,
        help="Break what programs assume instead, and see that it is noticed.")  # fmt: skip
    add("--through", default="compile", help="With --assumptions: compile, export or precompile.")
    add("--json", metavar="FILE", help="Write the totals and findings as JSON.")


def _do_fuzz(given: argparse.Namespace) -> int:
    _require_for_fuzzing(given)
    from anyshape.fuzz import campaign, command
    from anyshape.fuzz.oracle import Target

    target = Target(given.compiler, given.backend, given.economy, given.variants, given.device)
    shard = campaign.parse_shard(given.shard)
    programs, seed, json = given.programs, given.seed, given.json
    if given.opinfo:
        found = command.opinfo(target, only=given.only, shard=shard, json_file=json)
    elif given.numbers:
        found = command.numbers(target, programs=programs, seed=seed, shrink=given.shrink, json_file=json)
    elif given.assumptions:
        found = command.assumptions(target, programs=programs, seed=seed, through=given.through, json_file=json)
    elif given.model is not None:
        found = command.model(given.model, target, calls=programs, seed=seed, json_file=json)
    else:
        limits = (given.timeout, given.shrink, given.memory)
        settings = campaign.Settings(programs, seed, target, given.workers, shard, *limits)
        found = command.campaign(settings, given.corpus, json_file=json)
    return int(found > 0)


def _require_for_fuzzing(given: argparse.Namespace) -> None:
    """What is missing is said before anything runs."""
    if given.corpus and "://" in given.corpus:
        require("fsspec", needed_for=f"--corpus {given.corpus}", extra="urls")
    if given.opinfo:
        for package in ("numpy", "expecttest"):
            require(package, needed_for="torch's database of operators", extra="fuzz")
    elif given.model is None:
        require("hypothesis", needed_for="generating programs", extra="fuzz")
    if given.assumptions:
        require("z3", needed_for="--assumptions", extra="solver")


# -- repairs ---------------------------------------------------------------------------------------------------


def _repairs(commands: Any) -> None:
    parser = _add(
        commands,
        "repairs",
        _do_repairs,
        line="List what anyshape changes in torch, and what of it applies to the installed torch.",
        text="Each repair is applied, absent (this torch has no such name) or not needed (this torch is right).\n"
        "Repairs hold while anyshape captures or compiles, and never in stock torch.compile.",
        example="anyshape repairs\nanyshape repairs --json repairs.json",
    )
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="Write the same as JSON, with all details.")


def _do_repairs(given: argparse.Namespace) -> int:
    from anyshape import repair_table

    repair_table.show(json_file=given.json)
    return 0


# -- help ------------------------------------------------------------------------------------------------------


def _help(commands: Any) -> None:
    parser = _add(
        commands,
        "help",
        _do_help,
        line="Explain an error or a finding of the doctor by its code.",
        text="Without a code, all codes of errors are listed.",
        example="anyshape help AS020\nanyshape help D130",
    )
    parser.add_argument("code", nargs="?", help="The code: AS020, D130.")


def _do_help(given: argparse.Namespace) -> int:
    from anyshape import help_pages

    print(help_pages.index() if given.code is None else help_pages.page(given.code), end="")
    return 0


# -- the entry point -------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit status. An `anyshape.Error` is the caller's."""
    parser = build()
    given = parser.parse_args(list(arguments))
    if given.version:
        print(f"anyshape {__version__} (torch {_torch_version()}, Python {sys.version.split()[0]})")
        return 0
    if given.command is None:
        parser.print_help()
        return 2
    status: int = given.command(given)
    return status


def _torch_version() -> str:
    """As its package says it; torch itself takes seconds to import."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


def main() -> None:
    """The entry point."""
    try:
        status = run(sys.argv[1:])
    except Error as error:
        print(error, file=sys.stderr)
        status = 2
    sys.exit(status)


if __name__ == "__main__":
    main()
