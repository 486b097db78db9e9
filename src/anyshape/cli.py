"""The command line: `anyshape ...`, the same as `python -m anyshape ...`.

Owns the commands and their options, and turns an `anyshape.Error` into a message and an exit status. What a command
does is in the module it is named after.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

from anyshape.errors import Error, missing


def build() -> Any:
    """The typer application; made on demand, because the package itself runs without typer."""
    try:
        import typer
    except ImportError as error:
        raise missing("typer", needed_for="the command line") from error

    app = typer.Typer(
        name="anyshape",
        help="Compile once. Exactly eager, for every shape.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def root() -> None:
        """Compile once. Exactly eager, for every shape."""

    @app.command()
    def demo(
        backend: str = typer.Option("inductor", help="What compiles the captured graphs; any torch.compile backend."),
    ) -> None:
        """Five programs beside stock torch over sizes that include 0 and 1; status 1 if anyshape is wrong anywhere."""
        from anyshape import demo as demonstration

        rows = demonstration.run(backend=backend)
        raise typer.Exit(int(any(r.wrong for r in rows if r.way == demonstration.OURS)))

    @app.command(context_settings={"ignore_unknown_options": True})
    def run(
        script: str = typer.Argument(help="The script; what follows it is its own."),
        arguments: list[str] = typer.Argument(None, help="What the script is given."),
    ) -> None:
        """Run a script with what anyshape.toml declares turned on."""
        from anyshape import hooks

        hooks.run(script, arguments or [])

    @app.command()
    def fuzz(
        programs: int = typer.Option(1000, help="How many programs are generated."),
        seed: int = typer.Option(0, help="The same seed gives the same programs."),
        backend: str = typer.Option("aot_eager", help="What compiles the captured graphs."),
        compiler: str = typer.Option("anyshape", help="anyshape, stock:static, stock:dynamic or stock:unbacked."),
        workers: int = typer.Option(1, help="Processes that run at a time."),
        corpus: str = typer.Option(None, help="A directory or URL: findings go there, and the campaign is resumed."),
        shard: str = typer.Option(None, help="The part that runs here, as 0/4; under torchrun the rank's."),
        timeout: float = typer.Option(120.0, help="Seconds that one program may take."),
        shrink: float = typer.Option(120.0, help="Seconds that the shrinking of one finding may take."),
        memory: float = typer.Option(24.0, help="GiB of address space for a worker; 0 for no limit."),
        economy: bool = typer.Option(True, help="Whether more programs than behaviours are a finding."),
        variants: bool = typer.Option(
            False, help="Whether every size gets code of its own, and is called again until that serves it."
        ),
        device: str = typer.Option("cpu", help="Where the tensors of generated programs are: cpu or cuda."),
        opinfo: bool = typer.Option(False, help="Instead: every operator of torch's own database over sizes."),
        only: str = typer.Option(None, help="With --opinfo: names of operators, separated by commas."),
        model: str = typer.Option(None, help="Instead: a model of yours, as module:factory."),
        numbers: bool = typer.Option(False, help="Instead: programs over Python ints and floats."),
        assumptions: bool = typer.Option(
            False, help="Instead: break what programs assume, and see that it is checked."
        ),
        through: str = typer.Option(
            "compile", help="With --assumptions: compile, export or precompile, what is called with broken sizes."
        ),
        json: str = typer.Option(None, metavar="FILE", help="Write the totals and findings here."),
    ) -> None:
        """Programs nobody thought of, compared with eager; status 1 if one differs."""
        from anyshape.fuzz import campaign, command
        from anyshape.fuzz.oracle import Target

        target = Target(compiler, backend, economy, variants, device)
        if opinfo:
            found = command.opinfo(target, only=only, shard=campaign.parse_shard(shard), json_file=json)
        elif numbers:
            found = command.numbers(target, programs=programs, seed=seed, shrink=shrink, json_file=json)
        elif assumptions:
            found = command.assumptions(target, programs=programs, seed=seed, through=through, json_file=json)
        elif model is not None:
            found = command.model(model, target, calls=programs, seed=seed, json_file=json)
        else:
            settings = campaign.Settings(
                programs, seed, target, workers, campaign.parse_shard(shard), timeout, shrink, memory
            )
            found = command.campaign(settings, corpus, json_file=json)
        raise typer.Exit(int(found > 0))

    @app.command(context_settings={"allow_interspersed_args": False})
    def doctor(
        program: list[str] = typer.Argument(None, help="A script and its arguments.", metavar="SCRIPT [ARGS]..."),
        module: str = typer.Option(None, "-m", help="Run a module instead, as python -m does."),
        tests: str = typer.Option(None, "--pytest", help="Run tests instead; more arguments go to pytest."),
        trace: pathlib.Path = typer.Option(None, "--from", help="Read a folder that TORCH_TRACE wrote instead."),
        verify: bool = typer.Option(False, "--verify", help="Run again with the remedies, and compare."),
        write: bool = typer.Option(False, "--write", help="Put the declarations into anyshape.toml."),
        json: pathlib.Path = typer.Option(None, "--json", help="Write the report as JSON."),
        html: pathlib.Path = typer.Option(None, "--html", help="Write the report as one page."),
        live: bool = typer.Option(True, "--live/--no-live", help="A line for each compilation while it runs."),
    ) -> None:
        """Run a program that compiles, unchanged, and say what is wrong: the line, the reason, the fix, the proof."""
        from anyshape.doctor import command, launch

        arguments = tuple(program or ())
        chosen: launch.Program | None = None
        if tests is not None:
            chosen = launch.Program("pytest", (tests, *arguments))
        elif module is not None:
            chosen = launch.Program("module", (module, *arguments))
        elif arguments:
            chosen = launch.Program("script", arguments)
        status = command.examine(
            chosen, trace_folder=trace, verify=verify, write=write, json_file=json, html_file=html, live=live
        )
        raise typer.Exit(status)

    @app.command()
    def precompile(
        name: str = typer.Argument(help="A function, a module or a class of modules, as package.module:name."),
        shape: list[str] = typer.Option(..., "--shape", "--shapes", help='"x=batch seq 512"; "ids=batch seq:int64".'),
        where: list[str] = typer.Option([], help='An invariant: "1 <= batch <= 64".'),
        specialize: list[str] = typer.Option([], help='Sizes that get code of their own: "batch == 1".'),
        call: list[str] = typer.Option([], help='A call to compile for: "batch=1 seq=64".'),
        out: str = typer.Option(..., help="The file or URL to write."),
        cover: bool = typer.Option(False, "--cover", help="Find calls for every behaviour that is allowed."),
        training: bool = typer.Option(False, "--training", help="Forward and backward, instead of inference."),
        weights: str = typer.Option("live", help="live, or embed to put the parameters into the file."),
        key: str = typer.Option(None, metavar="FILE", help="A secret to sign the file with."),
    ) -> None:
        """Compile now, for a process that never compiles."""
        from anyshape.ahead import command

        command.precompile(
            name,
            shapes=shape,
            where=where,
            specialize=specialize,
            calls=call,
            out=out,
            cover=cover,
            training=training,
            weights=weights,
            key_file=key,
        )

    @app.command()
    def inspect(
        url: str = typer.Argument(help="An artifact: a file or a URL."),
        json: pathlib.Path = typer.Option(None, "--json", metavar="FILE", help="Write it as JSON."),
    ) -> None:
        """What is in an artifact, without running any of it."""
        from anyshape.ahead import command

        command.inspect(url, json_file=json)

    @app.command()
    def verify(
        url: str = typer.Argument(help="An artifact: a file or a URL."),
        key: str = typer.Option(None, metavar="FILE", help="The secret that it was signed with."),
        anywhere: bool = typer.Option(False, "--anywhere", help="Do not ask whether it was made for this machine."),
    ) -> None:
        """Whether an artifact is whole, whose it is, and whether it was made for this machine."""
        from anyshape.ahead import command

        command.verify(url, key_file=key, anywhere=anywhere)

    return app


def main() -> None:
    """The entry point."""
    try:
        build()()
    except Error as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
