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
