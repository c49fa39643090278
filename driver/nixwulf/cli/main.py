"""The command line: names, a line of help each, exit codes. Commands load when they are used."""

from __future__ import annotations

import errno
import importlib
import io
import keyword
import os
import shlex
import sys
from contextlib import suppress
from typing import Any

import click

from nixwulf import __version__
from nixwulf.cli.options import NamedGroup
from nixwulf.core import interrupts
from nixwulf.core.errors import EXIT_INTERRUPTED, EXIT_USAGE, InputError, one_line, quoted
from nixwulf.core.files import DATA, read_toml
from nixwulf.core.secrets import cut, without

_BY_MODULE: dict[str, dict[str, str]] = read_toml(DATA / "commands.toml")
_MOST_SHOWN = 300
_MODULES = {name: module for module, commands in _BY_MODULE.items() for name in commands}


class _LazyGroup(NamedGroup):
    """Imports a command's module when it is called: help needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = importlib.import_module(f"nixwulf.cli.{_MODULES[cmd_name]}")
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(pair for one in _BY_MODULE.values() for pair in one.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="nixwulf")
@click.option("-q", "--quiet", is_flag=True, help="Print no progress.")
@click.option("-v", "--verbose", is_flag=True, help="Show each program that is started, here.")
@click.pass_context
def cli(ctx: click.Context, *, quiet: bool, verbose: bool) -> None:
    """Image, measure and explain small desk-side clusters.

    Without a cluster of your own, 'nixwulf bench' builds one out of network namespaces on this
    machine, runs real engines on it, and writes a report.
    """
    ctx.default_map = {name: {"quiet": True} for name in _MODULES} if quiet else {}
    if verbose:
        sys.addaudithook(_show)


def _show(event: str, arguments: tuple[Any, ...]) -> None:
    """Print the command of a program that starts, cut; ssh's end is what runs on the node."""
    if event == "subprocess.Popen":
        words = " ".join(map(shlex.quote, map(str, arguments[1])))
        click.echo(f"+ {cut(without(one_line(words)), _MOST_SHOWN)}", err=True)


_OF_THE_MACHINE = {
    *(errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM, errno.EAGAIN, errno.EIO),
    # Of 'ulimit -f', a quota, and file systems that are read-only, over a network, or all gone.
    *(errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT),
    errno.ENOENT,  # no folder for temporary files
}

# A library or the stack of a thread that is too large for what 'ulimit -v' leaves.
_NO_ROOM = ("failed to map segment from shared object", "can't start new thread")


def _of_the_machine(error: Exception) -> str:
    """Say what a user can mend of a failure of the system's; empty for a fault of ours."""
    if not isinstance(error, OSError):
        no_room = isinstance(error, MemoryError) or any(text in str(error) for text in _NO_ROOM)
        words = "There is not enough memory; look at 'ulimit -v' and at what else runs."
        return words if no_room else ""
    if error.filename is None:
        return f"{error.strerror}." if error.errno in _OF_THE_MACHINE else ""
    # A name that no file can have, one that this user may not look at, or nothing is left.
    return f"{quoted(str(error.filename))}: {error.strerror}."


def _say(error: click.ClickException) -> None:
    """Show an error in one line; the help of a command without arguments has more."""
    if not isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.message = one_line(error.message)  # type: ignore[misc]
    error.show()


def main() -> None:
    """Run the command line and exit: 0 ok, 1 failed, 2 usage, 3 a gate refused, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # of ASCII too: no character ends a command
            stream.reconfigure(errors="backslashreplace")
    # OpenBLAS interrupts the process that cannot have its threads, and what we compute needs none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    interrupts.handle()
    try:
        code = cli(standalone_mode=False)
        if sys.stdout:
            sys.stdout.flush()
    except click.ClickException as error:
        _say(error)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        with suppress(OSError):
            click.echo("Interrupted.", err=True)
        code = EXIT_INTERRUPTED
    except (OSError, MemoryError, ImportError, RuntimeError) as error:
        if not (words := _of_the_machine(error)):
            raise
        with suppress(OSError):  # of a stream that is full too
            InputError(words).show()
        code = EXIT_USAGE
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:  # what it holds would be written, and fail, once more at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code if isinstance(code, int) else 0)
