"""The command line: `anyshape ...`, the same as `python -m anyshape ...`.

Owns the commands and their options, and turns an `anyshape.Error` into a message and an exit status. What a command
does is in the module it is named after.
"""

from __future__ import annotations

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
