"""nixwulf cluster, preflight and doctor: what machines are, and whether they are fine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nixwulf.cli import options
from nixwulf.core.errors import EXIT_GATE, InputError
from nixwulf.core.text import as_typed, clean, plural

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster
    from nixwulf.nodes.ssh import Connection
    from nixwulf.ops.survey.draft import ClusterDraft
    from nixwulf.ops.survey.machines import Surveyed


@click.group(cls=options.NamedGroup)
def cluster() -> None:
    """Write a cluster file from what machines report, or check one against them."""


@cluster.command()
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@options.path(
    "--from",
    "Reach hosts by this ssh config; without HOST all that it names.",
    "config",
    metavar="SSH_CONFIG",
)
@click.option("--name", help="The cluster's name (default: the output's, or 'mine').")
@options.path("--output", "Write to this file and not to standard output.", metavar="FILE")
@click.option("--force", is_flag=True, help="Overwrite the output without asking.")
@click.option("--check", "existing", metavar="FILE", help="Write nothing: as 'cluster check FILE'.")
def new(
    hosts: tuple[str, ...],
    config: Path | None,
    name: str | None,
    output: Path | None,
    force: bool,
    existing: str | None,
) -> None:
    """Write a cluster file of what the machines say, reached by ssh as HOST: an address or alias.

    Each interface with its address, its speed as linked and the MTU that passes, who reaches whom
    on it (by pings in both directions), RDMA devices and GIDs, disks as comments. What is uncertain
    has a comment with the reason, and what is left out is listed at the end. Needs no root; nothing
    is changed on the machines. The order of hosts is that of the nodes: the first is the head.

    \b
    Examples:
      nixwulf cluster new you@192.168.1.21 you@192.168.1.22 --output mine.toml
      nixwulf cluster new --from ~/.ssh/config fw1 fw2
      nixwulf cluster new --check mine.toml
    """
    if existing is not None:
        if hosts or config or name or output or force:
            raise click.UsageError("--check reads a file and its nodes; leave out all else.")
        click.get_current_context().invoke(check, file=existing)
        return
    if output is not None:
        _may_write(output, force=force)
    named = name or (re.sub(r"[^A-Za-z0-9._-]", "-", output.stem) if output else "mine")
    written = _survey(hosts, config, named)
    if output is None:
        click.echo(written, nl=False)
        return
    from nixwulf.core.files import write_atomically

    write_atomically(output, written)
    again = as_typed("preflight", "--cluster", output)
    options.tell(f"Wrote {output}; go on with {again}.")


@cluster.command()
@click.argument("file")
def check(file: str) -> None:
    """Hold a cluster file against its machines: the gates 'fabric' and 'versions', then the rest.

    The rest is what 'cluster new' would write: platforms, who reaches whom, kinds, speeds as
    linked, MTUs that pass, RDMA devices, GIDs, disks. The exit code is 0 when all agree, else 3;
    the nodes of a lab are not reached. 'nixwulf preflight' holds every gate.

    \b
    Examples:
      nixwulf cluster check clusters/mine.toml
    """
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.nodes.ssh import connections
    from nixwulf.ops.survey.draft import additions, differences

    found = load_cluster(file)
    print_file(found)
    if found.is_lab:
        return
    reached = connections(found)
    if not hold(found, reached, ["fabric", "versions"], (), "text"):
        options.end(EXIT_GATE)
    machines, real = _survey_of(found, reached)
    wrong = differences(found, machines, real)
    for sentence in [*wrong, *additions(found, real)]:
        click.echo(sentence)
    if wrong:
        options.end(EXIT_GATE)
    click.echo(f"All {len(found.nodes)} nodes answer and are on their fabrics.")


def _may_write(output: Path, *, force: bool) -> None:
    if output.is_dir():
        raise InputError(f"{str(output)!r} is a folder; give a file such as 'mine.toml'.")
    if output.exists() and not force:
        options.confirm(
            f"{str(output)!r} exists. Overwrite it?", "--force, or give another --output"
        )


def _survey(hosts: Sequence[str], config: Path | None, name: str) -> str:
    """The text of a cluster file; what is noteworthy goes to standard error."""
    from nixwulf.inventory.cluster import Node
    from nixwulf.nodes.ssh import connect, hosts_of
    from nixwulf.ops.survey.draft import inquire, renamed, render
    from nixwulf.ops.survey.machines import check_different, node_names, survey

    other = config if config and config.expanduser() != Path.home() / ".ssh" / "config" else None
    if config is not None and not hosts:
        hosts = hosts_of(config.expanduser())
    _check_hosts(hosts)
    reached = connect([Node(host, "", host) for host in hosts], other)
    try:
        options.tell(f"Asking {plural(len(hosts), 'machine')} what they are.")
        machines = survey(list(reached.values()))
        check_different(machines)
        names = node_names(machines)
        machines = renamed(machines, names)
        by_name = dict(zip(names, reached.values(), strict=True))
        found = inquire(name, machines, by_name, options.tell)
    finally:
        if other is not None:
            for connection in reached.values():
                connection.close()
    text = render(found)
    _read(text)
    _say_of(found, other)
    return text


def _read(text: str) -> Cluster:
    """The cluster of a text, as all commands will read it."""
    import tomllib

    from nixwulf.core.schema import check as check_schema
    from nixwulf.inventory.cluster import parse_cluster

    document = tomllib.loads(text)
    check_schema(document, "cluster", "What the machines say")
    return parse_cluster(document, "What the machines say")


def _survey_of(
    cluster: Cluster, reached: dict[str, Connection]
) -> tuple[Sequence[Surveyed], Cluster]:
    from nixwulf.ops.survey.draft import inquire, render
    from nixwulf.ops.survey.machines import survey

    machines = survey([reached[node.name] for node in cluster.nodes])
    return machines, _read(render(inquire(cluster.name, machines, reached, options.tell)))


def _check_hosts(hosts: Sequence[str]) -> None:
    from nixwulf.core.schema import schema

    if not hosts:
        raise click.UsageError("Name the machines, such as you@192.168.1.21, or give --from.")
    ssh = schema("cluster")["properties"]["nodes"]["items"]["properties"]["ssh"]
    for host in hosts:
        if not re.fullmatch(ssh["pattern"], host):
            raise InputError(f"{host!r} is no host, expected {ssh['description']}.")
        if hosts.count(host) > 1:
            raise InputError(f"{host!r} is named twice; a machine is one node.")


def _say_of(found: ClusterDraft, config: Path | None) -> None:
    fabrics = found.document["fabrics"]
    if not fabrics and len(found.document["nodes"]) > 1:
        options.tell(
            "Warning: no two of these machines reach each other on a wire, so that the file has no "
            "fabric; its last comments say why of each interface."
        )
    if found.uncertain:
        options.tell(
            f"Uncertain: {plural(len(found.uncertain), 'value')}; the comments above say why."
        )
    if config is not None:
        options.tell(
            f"The hosts are known to {config}; put 'Include {config.resolve()}' at the top of "
            "~/.ssh/config, for the other commands read that alone."
        )


@click.command()
@options.cluster()
@options.only_nodes
@click.option(
    "--only",
    type=click.Choice(["file", "status", "facts"]),
    help="Check no gate. file: check the cluster file and reach no node; status: who answers, "
    "since when, and what nixwulf runs there; facts: what each machine is, and its disks by id.",
)
@options.repeatable("--gate", "GATE", "Only this gate", "gates")
@options.repeatable("--waive", "GATE", "Do not refuse by it")
@options.json_format("Output format; docs/sweeps.md has the JSON of the gates.")
def preflight(
    cluster: str | None,
    chosen: tuple[str, ...],
    only: str | None,
    gates: tuple[str, ...],
    waive: tuple[str, ...],
    form: str,
) -> None:
    """Say whether a cluster is fine: check every gate on every node and fabric; run no case.

    The exit code is 0 when none refuses and all nodes answer, else 3. docs/reference/gates.md has
    what each gate reads.

    \b
    Examples:
      nixwulf preflight --cluster clusters/mine.toml
      nixwulf preflight --cluster clusters/framework-2.toml --only file
      nixwulf preflight --cluster mine --waive governor --format json
    """
    if only and (gates or waive):
        raise click.UsageError(f"--only {only} holds no gate; leave out --gate and --waive.")
    if only == "file" and form == "json":
        raise click.UsageError("--only file prints a sentence; leave out --format.")
    if only == "file":
        from nixwulf.inventory.cluster import load_cluster

        print_file(load_cluster(cluster) if cluster else options.find_cluster(None)[0])
        return
    found, everyone, names = options.find_nodes(cluster, chosen)
    reached = {name: everyone[name] for name in names}
    if only:
        fine = {"status": _print_status, "facts": _print_facts}[only](reached, form)
    else:
        fine = hold(found, reached, gates, waive, form)
    options.end(0 if fine else EXIT_GATE)


def hold(
    cluster: Cluster,
    connections: Mapping[str, Connection],
    gates: Sequence[str],
    waive: Sequence[str],
    form: str,
) -> bool:
    """Hold gates and print what they say; whether none of them refuses."""
    from nixwulf.ops.preflight import preflight, table_of
    from nixwulf.plugins.gates import known_names

    waived = known_names(waive)
    found = preflight(cluster, connections, waived, known_names(gates, "--gate") or None)
    if form == "json":
        options.print_json(found.document())
    else:
        click.echo(table_of(found))
        for state in ("refused", "waived", "unknown"):
            for result in found.of(state):
                for sentence in result.sentences:
                    click.echo(f"{state} by {result.gate}: {clean(sentence)}")
    return not found.of("refused")


def print_file(found: Cluster) -> None:
    """Print a line of what a cluster file has."""
    click.echo(
        f"{found.source}: cluster {found.name!r}, {len(found.nodes)} nodes, fabrics "
        f"{', '.join(found.fabrics)}."
    )


def _print_status(connections: Mapping[str, Connection], form: str) -> bool:
    from nixwulf.ops.recover import states

    found = states(connections.values())
    text = "\n".join(one.sentence() for one in found)
    options.print_json(found) if form == "json" else click.echo(clean(text))
    return not any(one.error is not None for one in found)


def _print_facts(connections: Mapping[str, Connection], form: str) -> bool:
    from nixwulf.ops.deploy.machine import reach_machines
    from nixwulf.ops.deploy.plan import facts_text

    options.tell(f"Reaching {plural(len(connections), 'node')}.")
    machines = reach_machines(connections)
    texts = [facts_text(one.node, machines[name]) for name, one in connections.items()]
    options.print_json(machines) if form == "json" else click.echo(clean("\n\n".join(texts)))
    return not any(isinstance(machine, str) for machine in machines.values())


@click.command()
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@options.cluster()
@options.only_nodes
@options.path("--ssh-config", "Reach HOST by this ssh config.", "config", metavar="SSH_CONFIG")
@click.option(
    "--load",
    is_flag=True,
    help="Also load machines by llama-bench and links by iperf3, 10 s each: as fast as their kind?",
)
@options.formats(
    "text", "json", "ndjson", words="Output format; ndjson is a finding a line, to post or to grep."
)
def doctor(
    hosts: tuple[str, ...],
    cluster: str | None,
    chosen: tuple[str, ...],
    config: Path | None,
    load: bool,
    form: str,
) -> None:
    """Say what is wrong with machines and their links: each line with what mends it.

    Asks the nodes of a cluster file, or each HOST that ssh knows, without root, and changes
    nothing. Every line has what was read, what it should be, the command that mends it, and the
    document or thread that says so (docs/reference/checks.md); the gates of preflight are among
    them. The exit code is 0 when nothing is wrong and all machines answer, else 3; warnings are 0.

    \b
    Examples:
      nixwulf doctor --cluster clusters/mine.toml
      nixwulf doctor you@192.168.1.21 you@192.168.1.22
      nixwulf doctor --cluster mine --node fw1 --format ndjson
    """
    from nixwulf.inventory.cluster import Node
    from nixwulf.nodes.ssh import connect
    from nixwulf.ops.doctor.examine import doctor as examine
    from nixwulf.ops.doctor.examine import page

    if hosts and chosen:
        raise click.UsageError("--node chooses of a cluster file; give HOST or --node.")
    step = options.tell if load else None
    if hosts:
        given = click.get_current_context().get_parameter_source("cluster")
        if given is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("Give HOST or --cluster: a cluster file names its hosts.")
        found = examine(connect([Node(host, "", host) for host in hosts], config), None, step)
    else:
        of, everyone, names = options.find_nodes(cluster, chosen)
        found = examine({name: everyone[name] for name in names}, of, step)
    if form == "json":
        options.print_json(found.document(), "examination")
    elif form == "ndjson":
        for one in found.findings:
            click.echo(json.dumps(one.document()))
    else:
        click.echo(clean(page(found)))
    options.end(EXIT_GATE if found.of("wrong") else 0)
