"""Options that several commands have, and the cluster and nodes that they choose."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import click
from click.shell_completion import CompletionItem

from nixwulf.core.errors import EXIT_USAGE, GateError, InputError, NixwulfError, one_line
from nixwulf.core.files import known_inputs, titled
from nixwulf.core.text import did_you_mean

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster, Node
    from nixwulf.nodes.ssh import Connection


_Command = TypeVar("_Command", bound=Callable[..., object])


class _Option(Protocol):
    def __call__(self, command: _Command, /) -> _Command: ...


class FilePath(click.Path):
    """A path; an empty one is refused, which would be the current folder."""

    def __init__(self, *, dir_okay: bool = True) -> None:
        super().__init__(dir_okay=dir_okay, path_type=Path)

    def convert(
        self, value: str | PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | PathLike[str]:
        """The path; raises BadParameter for none, and for one that is no text."""
        if not value:
            self.fail("the path is empty; the current folder is '.'.", param, ctx)
        return super().convert(value, param, ctx)


class Named(click.types.StringParamType):
    """Text of which a shell completes the names that there are, else files."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.names = names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so; without one, the shell's files."""
        found = [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


CLUSTER = Named(lambda: known_inputs("clusters", ".toml"))
SWEEP = Named(lambda: known_inputs("sweeps", ".yaml"))
# Imported when a shell asks: no command waits for what only another one needs.
MODEL = Named(lambda: [one["name"] for one in import_module("nixwulf.llm.catalog").table()])
ENGINE = Named(lambda: import_module("nixwulf.plugins.engines").all_engines())
PLATFORM = Named(lambda: import_module("nixwulf.inventory.platforms").platform_names())


class _ClusterOption(click.Option):
    """--cluster, else NIXWULF_CLUSTER; a run that is resumed has its own."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """The variable's value; click has read what was typed before it asks."""
        return None if ctx.params.get("resume") else super().resolve_envvar_value(ctx)


class NamedGroup(click.Group):
    """Commands; of a name that is none the nearest is said, as of an option."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; raises UsageError."""
        known = self.list_commands(ctx)
        if args[0][:1].isalnum() and args[0] not in known and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}; {did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)


# An option whose help ends with its default.
defaulting = partial(click.option, show_default=True)
_LAB_OR_CLUSTER = "The cluster (default: the lab that is up)."
_cluster = partial(click.option, "--cluster", type=CLUSTER, metavar="FILE|NAME")
# Of commands that change machines: no variable that was forgotten chooses those.
cluster_or_lab = _cluster(help=_LAB_OR_CLUSTER)
machines = _cluster("name", required=True, help="The cluster.")


def cluster(words: str = _LAB_OR_CLUSTER, *, required: bool = False) -> _Option:
    """The option --cluster of a command that changes no machine, with its help."""
    variable = {"envvar": "NIXWULF_CLUSTER", "show_envvar": True}
    return _cluster(cls=_ClusterOption, required=required, help=words, **variable)


def repeatable(
    name: str, metavar: str | None, words: str, *more: str, of: click.Choice[str] | None = None
) -> _Option:
    """An option that may be given several times.

    more: further names, and the parameter's; of: its values, None of any text.
    """
    text = f"{words}; repeatable."
    return click.option(name, *more, multiple=True, metavar=metavar, help=text, type=of)


def path(name: str, words: str, *more: str, **attributes: Any) -> _Option:
    """An option that is a file or a folder; more: further names, and the parameter's."""
    return defaulting(name, *more, type=FilePath(), help=words, **attributes)


only_nodes = repeatable("--node", "NAME", "Only this node", "chosen")
flake = defaulting("--flake", default=".", help="The flake of the configurations.")
prebuilt = click.option(
    "--prebuilt",
    "prebuilt_file",
    type=FilePath(dir_okay=False),
    help="Take what 'nix build .#deployments.CLUSTER' made; nothing is evaluated or built.",
)
expect_cluster = click.option(
    "--expect-cluster",
    metavar="CLUSTER",
    help="The cluster whose systems the nodes run now, if another.",
)

out = path("--out", "Folder of the run (default: in runs/).")
dry_run = click.option("--dry-run", is_flag=True, help="Print the plan, and do nothing.")
waive = repeatable("--waive", "GATE", "Run although this gate refuses")
fetch = click.option(
    "--fetch", is_flag=True, help="First push models that nodes lack, as 'models push'."
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Print no progress.")

_RUNNING = (
    out,
    dry_run,
    path("--resume", "Run what is missing in this folder."),
    click.option(
        "--allow-commands",
        is_flag=True,
        help="With --resume: the plan may run its power_switch commands on this machine.",
    ),
    repeatable("--allow-secrets", "NAME", "Cases may take this variable of the environment"),
    repeatable("--allow-url", "HOST", "Cases may ask this host, which is not of the cluster"),
    waive,
    fetch,
    quiet,
)


def running(command: _Command) -> _Command:
    """The options of a command that runs a plan."""
    for option in reversed(_RUNNING):
        command = option(command)
    return command


def formats(*forms: str, words: str = "Output format.") -> _Option:
    """The option --format of a command, whose default is the first form."""
    choice = click.Choice(forms)
    return defaulting("--format", "form", type=choice, default=forms[0], help=words)


table_format = formats("table", "md", "json")


def json_format(words: str = "Output format.") -> _Option:
    """The option --format of a command that prints text or JSON."""
    return formats("text", "json", words=words)


def print_form(form: str, module: ModuleType, *found: object) -> None:
    """Print what a module makes of something: on a terminal, as Markdown or as JSON."""
    if form == "table":
        module.to_terminal(*found)
    else:
        click.echo((module.to_markdown if form == "md" else module.to_json)(*found), nl=False)


def print_json(document: Mapping[str, object] | Sequence[object], kind: str = "") -> None:
    """Print JSON, in which a dataclass is an object of its fields, and a set a list.

    kind: of an object that is a document of the command's own, what it is.
    """
    if kind and isinstance(document, Mapping):
        document = titled(kind, document)

    def plain(value: object) -> object:
        return sorted(value) if isinstance(value, frozenset) else vars(value)

    click.echo(json.dumps(document, indent=1, default=plain))


def timeout(
    default_s: float, words: str, name: str = "--timeout", parameter: str = "timeout_s"
) -> _Option:
    """The option --timeout, or another one in seconds."""
    return defaulting(name, parameter, default=default_s, metavar="SECONDS", help=words)


def fail_below(words: str) -> _Option:
    """The option --fail-below of a comparison, with its help."""
    return click.option(
        "--fail-below",
        "limit",
        type=click.FloatRange(min=0, min_open=True),
        callback=_finite,
        metavar="RATIO",
        help=words,
    )


def _finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Refuse NaN and infinity, which a range of floats lets through."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value!r} is no ratio; give one such as 0.95.", ctx, parameter)
    return value


def end(code: int) -> NoReturn:
    """End the command with an exit code."""
    click.get_current_context().exit(code)


def require_none(problems: Sequence[str]) -> None:
    """End the program with exit code 2 after a line for each problem, where there is one."""
    tell(*problems)
    if problems:
        raise SystemExit(EXIT_USAGE)


def confirm(question: str, option: str) -> None:
    """Ask before something is lost; raises InputError where nobody answers, NixwulfError for no."""
    try:
        answer = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise InputError(f"There is no terminal to answer at; add {option}.") from None
    if not answer:
        raise NixwulfError("Nothing was done: the answer is no.")


def find_cluster(name: str | None) -> tuple[Cluster, Path | None]:
    """A cluster or, without a name, the one lab that is up; and of a lab its ssh config."""
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.nodes import lab

    if name is not None:
        cluster = load_cluster(name)
        return cluster, lab.find(cluster.name).ssh_config if cluster.is_lab else None
    up = lab.labs()
    if len(up) != 1:
        names = ", ".join(one.name for one in up)
        raise InputError(
            f"Name a cluster with --cluster, because {len(up)} labs are up: {names}."
            if up
            else "Name a cluster with --cluster, or bring a lab up by 'nixwulf lab up'."
        )
    return up[0].cluster, up[0].ssh_config


def find_nodes(
    name: str | None, chosen: Sequence[str]
) -> tuple[Cluster, dict[str, Connection], list[str]]:
    """A cluster, as find_cluster, connections to all of its nodes, and the names of the chosen."""
    from nixwulf.nodes.ssh import connections

    cluster, config = find_cluster(name)
    names = [node.name for node in choose(cluster, chosen)]
    return cluster, connections(cluster, config), names


def open_nodes(name: str | None, chosen: Sequence[str]) -> tuple[Cluster, list[Connection]]:
    """A cluster, as find_cluster, and open connections to its chosen nodes; raises GateError."""
    from nixwulf.nodes.ssh import open_all

    cluster, everyone, names = find_nodes(name, chosen)
    nodes = [everyone[node] for node in names]
    for words in open_all(nodes).values():
        raise GateError(words)
    return cluster, nodes


def machine_progress() -> Callable[[str, str, float], None]:
    """Prints each step of a machine, and how far it is at every tenth."""
    steps: dict[str, tuple[str, int]] = {}

    def observe(machine: str, step: str, share: float) -> None:
        now = (step, 10 * int(10 * share))
        if now > steps.get(machine, ("", 0)) or now[0] != steps[machine][0]:
            steps[machine] = now
            tell(f"{machine}: {step}" + (f", {now[1]} %" if now[1] else ""))

    return observe


def tell(*sentences: str) -> None:
    """Print sentences on standard error, each on a line of its own."""
    for sentence in sentences:
        click.echo(sentence, err=True)


def report(name: str, words: str) -> None:
    """Say what happens on a node."""
    tell(f"{name}: {one_line(words)}")


def choose(cluster: Cluster, chosen: Sequence[str]) -> list[Node]:
    """The chosen nodes of a cluster, all when none is named; raises InputError."""
    known = [node.name for node in cluster.nodes]
    for name in chosen:
        if name not in known:
            raise InputError(f"No node {name!r} in {cluster.name!r}; {did_you_mean(name, known)}")
    return [node for node in cluster.nodes if not chosen or node.name in chosen]
