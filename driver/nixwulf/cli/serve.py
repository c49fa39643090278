"""nixwulf serve: a case kept running on one URL, and what is said and done about it."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nixwulf.cli import options
from nixwulf.core.errors import EXIT_RUN_FAILED, GateError, InputError
from nixwulf.core.text import as_typed, clean, plural, slug

if TYPE_CHECKING:
    from nixwulf.sweep.serve.control import LiveService

_LONGEST_NAME = 24
_TROUBLE = frozenset({"stalled", "dead", "down", "restarting", "stopped"})


class _ServeGroup(options.NamedGroup):
    """What is no command of its own is what to serve."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read 'serve --cluster mine best.yaml' as 'serve start ...'."""
        return super().parse_args(ctx, self._started(ctx, args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Read 'serve best.yaml' as 'serve start best.yaml'."""
        return super().resolve_command(ctx, self._started(ctx, args))

    def _started(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.list_commands(ctx), *ctx.help_option_names}
        return ["start", *args] if args and args[0] not in known else args


_name = click.argument("name", required=False)


@click.group(cls=_ServeGroup)
def serve() -> None:
    """Keep a case running on one URL of its first node, watched by its progress.

    'nixwulf serve best.yaml' is 'nixwulf serve start best.yaml'. A lab has to be up: 'lab up'.
    """


@serve.command()
@click.argument("target", metavar="SWEEP|RECIPE|RUN", type=options.SWEEP)
@options.cluster_or_lab
@click.option("--only", metavar="EXPR", default="", help="Which case, such as 'nodes=2'.")
@click.option("--name", metavar="NAME", help="Of the service (default: that of the file).")
@click.option("--slots", type=click.IntRange(0, 1024), default=0, help="Requests at once.")
@click.option(
    "--context", type=click.IntRange(0), default=0, help="Tokens of a request with its answer."
)
@click.option(
    "--port", type=click.IntRange(0, 65534), default=0, help="Of the URL, on the loopback."
)
@click.option("--address", metavar="IP", default="", help="Of the URL, for others to reach it.")
@click.option(
    "--api-key-file", metavar="FILE", type=options.FilePath(), help="nginx asks for this key."
)
@options.waive
@options.fetch
@options.quiet
def start(
    target: str,
    cluster: str | None,
    only: str,
    name: str | None,
    slots: int,
    context: int,
    port: int,
    address: str,
    api_key_file: Path | None,
    waive: tuple[str, ...],
    fetch: bool,
    quiet: bool,
) -> None:
    """Try a case out by one short run, start it to stay, and print its URL.

    SWEEP is a file with one case, such as best.yaml of 'nixwulf tune', or one that --only chooses.
    Facts, gates and the text check come first; the longest prompt in all slots gives the limits of
    the watch. It goes on when this command and this machine have ended.

    \b
    Examples:
      nixwulf serve runs/first/best.yaml --cluster clusters/mine.toml --name chat
      nixwulf serve smoke --only 'nodes=2 parallelism=pipeline' --slots 4 --context 8192
    """
    from nixwulf.nodes import lab
    from nixwulf.nodes.process import Hold, stop_orphans
    from nixwulf.nodes.ssh import connections, each, open_all
    from nixwulf.sweep.recording import make_progress
    from nixwulf.sweep.serve import control, proxy, trial
    from nixwulf.sweep.serve.service import check_address, check_name
    from nixwulf.sweep.session import Models, Session

    called = check_name(name or slug(Path(target).stem.lower(), _LONGEST_NAME) or "service")
    key = proxy.read_key(api_key_file) if api_key_file else ""
    at = check_address(address, closed=bool(key))
    wish = trial.Wish(target, only, called, slots, context, port, waive, at, closed=bool(key))
    sweep = trial.sweep_of(target)
    machines, config = options.find_cluster(cluster)
    plan = trial.plan_of(wish, sweep, machines)
    wanted = {node.name for node in plan.cases[0].nodes_of(machines)}
    everyone = connections(machines, config)
    nodes = {one: node for one, node in everyone.items() if one in wanted}
    if failures := open_all(nodes.values()):
        raise GateError(next(iter(failures.values())))
    if any(one.service.name == called for one in control.find_all(nodes)):
        stop_it = as_typed("serve", "stop", called, "--forget")
        raise InputError(
            f"{called!r} is here already; end it by {stop_it}, or give another --name."
        )
    folder = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-serve-{called}"
    up = next((one for one in lab.labs() if one.ssh_config == config), None)
    hold = Hold(f"serve {called!r}")
    hold.take(nodes.values())
    try:
        each(stop_orphans, nodes.values())
        with make_progress(quiet=quiet) as progress:
            opened = Session(machines, nodes, up, hold, Models(fetch, progress.building))
            record = trial.measure(plan, opened, folder, progress)
            service, commands = trial.service_of(record, plan, wish)
            live = control.LiveService(service, nodes)
            control.place(live, commands, key)
            live = control.bring_up(live, progress.step)
    finally:
        hold.release()
    _goes_on(live, "It was started.")


def _goes_on(live: LiveService, why: str) -> None:
    """Start the watch of a service that answers; print where it is, and what to know."""
    from nixwulf.sweep.serve import control

    service = live.service
    control.note(live, "idle", why, "started")
    options.tell(*control.start_watch(live))
    given = live.head.options
    lead = ["ssh", *(given[:2] if given[:1] == ("-F",) else ()), "-NL"]
    own = f"{service.port}:{service.address}:{service.port}"
    click.echo(f"{service.name} answers on node {service.head}: {service.url}")
    if service.local:
        click.echo(f"From here: {shlex.join([*lead, own, service.host(service.head).ssh])}")
    else:
        click.echo(
            f"Whoever reaches {service.address} and has the key can use the model; requests and "
            "answers are not encrypted on the way."
        )
    click.echo(
        f"It is started again when it holds a request and nothing moves for "
        f"{service.limits.still_s:.0f} s, by its run {service.record}; see "
        f"{as_typed('serve', 'status', service.name)}."
    )


def _find(name: str | None, cluster: str | None) -> LiveService:
    from nixwulf.sweep.serve import control

    return control.find(options.find_nodes(cluster, ())[1], name)


@serve.command("ls")
@options.cluster_or_lab
@options.json_format()
def ls(cluster: str | None, form: str) -> None:
    """List what is served on the nodes, with each service's URL.

    \b
    Example:
      nixwulf serve ls --cluster clusters/mine.toml
    """
    from nixwulf.sweep.serve import control

    found = [one.service for one in control.find_all(options.find_nodes(cluster, ())[1])]
    if form == "json":
        options.print_json({"services": [one.document() for one in found]}, "services")
        return
    for one in found:
        servers = plural(len(one.groups), "server")
        click.echo(f"{one.name}: {one.engine}, {servers}, on {one.head}: {one.url}")
    if not found:
        click.echo("Nothing is served here.")


@serve.command()
@_name
@options.cluster_or_lab
@options.json_format()
def status(name: str | None, cluster: str | None, form: str) -> None:
    """Show what the watch sees; exit code 1 where a server does not work or nobody watches.

    \b
    Example:
      nixwulf serve status chat --format json
    """
    from nixwulf.sweep.serve import control

    live = _find(name, cluster)
    service, seen = live.service, control.status(live)
    if form == "json":
        options.print_json(control.described(live, seen), "service-status")
    else:
        click.echo(f"{service.name} on {service.head}: {service.url}")
        for server, one in seen["servers"].items():
            held = plural(one.get("requests") or 0, "request")
            words = (
                f"{one['state']}, {held}, {plural(one.get('restarts', 0), 'restart')} in an hour"
            )
            click.echo(clean(f"  {server}: {words} {one['why']}".rstrip()))
        click.echo(f"  as of {seen.get('at', 'never')}")
    if not seen["watched"]:
        again = as_typed("serve", "restart", service.name)
        options.tell(f"Its watch does not run; start it again by {again}.")
    if not seen["watched"] or any(one["state"] in _TROUBLE for one in seen["servers"].values()):
        options.end(EXIT_RUN_FAILED)


@serve.command()
@_name
@options.cluster_or_lab
@options.repeatable("--unit", "UNIT", "Only of it", "chosen")
@options.defaulting("--lines", default=20, help="How many of each.")
def logs(name: str | None, cluster: str | None, chosen: tuple[str, ...], lines: int) -> None:
    """Print the last lines of all processes of a service, each after its node and unit.

    \b
    Example:
      nixwulf serve logs chat --lines 100
    """
    from nixwulf.sweep.serve import control

    for where, text in control.logs(_find(name, cluster), lines, chosen):
        for line in clean(text).splitlines():
            click.echo(f"{where}: {line}")


@serve.command()
@_name
@options.cluster_or_lab
@options.defaulting("--lines", default=50, help="How many.")
@options.json_format()
def events(name: str | None, cluster: str | None, lines: int, form: str) -> None:
    """Print what happened to a service: starts, stalls, restarts, and why; the oldest first.

    \b
    Example:
      nixwulf serve events chat --format json
    """
    from nixwulf.sweep.serve import control

    for one in control.events(_find(name, cluster), lines):
        words = f"{one['at']} {one['server']}: {one['action']}: {one.get('why', '')}"
        click.echo(json.dumps(one) if form == "json" else clean(words))


@serve.command()
@_name
@options.cluster_or_lab
@click.option("--forget", is_flag=True, help="Also remove its logs, events and evidence.")
def stop(name: str | None, cluster: str | None, forget: bool) -> None:
    """Stop a service: its watch, its URL and all its processes.

    \b
    Example:
      nixwulf serve stop chat
    """
    from nixwulf.sweep.serve import control, units

    live = _find(name, cluster)
    options.require_none(control.take_down(live))
    control.note(live, "dead", "It was stopped.", "stopped")
    for host in live.service.hosts if forget else ():
        units.forget(live.nodes[host.name], live.service.name)
    click.echo(f"{live.service.name} is stopped.")


@serve.command()
@_name
@options.cluster_or_lab
def restart(name: str | None, cluster: str | None) -> None:
    """Start all of a service again, in order, also one that was stopped or stayed down.

    \b
    Example:
      nixwulf serve restart chat
    """
    from nixwulf.sweep.serve import control

    live = _find(name, cluster)
    options.require_none(control.take_down(live))
    control.require_ports(live)
    live = control.bring_up(live, options.tell)
    _goes_on(live, "It was started again.")


@click.command()
@options.cluster_or_lab
@click.option("--once", is_flag=True, help="Print it once, and end.")
@options.json_format()
def top(cluster: str | None, once: bool, form: str) -> None:
    """Show what is served: requests, tokens, watts, clocks and the fabric, every two seconds.

    Where there is no terminal it is printed once.

    \b
    Examples:
      nixwulf top --cluster clusters/mine.toml
      nixwulf top --once --format json
    """
    from nixwulf.core.document import output
    from nixwulf.sweep.serve import control
    from nixwulf.sweep.serve import top as screens

    nodes = options.find_nodes(cluster, ())[1]
    if form == "text" and not once and sys.stdin.isatty() and sys.stdout.isatty():
        screens.show(nodes)
        return
    found = screens.look(nodes)
    if form == "json":
        options.print_json({"services": [control.described(*one) for one in found]}, "top")
        return
    for live, seen in found:
        output().print(screens.screen(live, seen))
    if not found:
        click.echo("Nothing is served here.")


@serve.command(hidden=True)
@click.argument("name")
def watch(name: str) -> None:
    """Watch a service of this machine for ever, as its unit does."""
    from nixwulf.sweep.serve.keeper import Keeper

    Keeper(name).run()
