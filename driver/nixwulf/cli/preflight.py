"""nixwulf preflight: whether a cluster is fine; the gates on every node, or what each node is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from nixwulf.cli.options import (
    ClusterOption,
    choose,
    find_cluster,
    json_format,
    only_nodes,
    print_json,
)
from nixwulf.core.errors import EXIT_GATE
from nixwulf.core.text import clean

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster
    from nixwulf.nodes.ssh import Connection


@click.command()
@click.option("--cluster", cls=ClusterOption, help="The cluster (default: the lab that is up).")
@only_nodes
@click.option(
    "--only",
    type=click.Choice(["file", "status", "facts"]),
    help="Hold no gate. file: check the cluster file and reach no node; status: who answers, since "
    "when, and what nixwulf runs there; facts: what each machine is, and its disks by id.",
)
@click.option("--gate", "gates", multiple=True, metavar="GATE", help="Only this gate; repeatable.")
@click.option("--waive", multiple=True, metavar="GATE", help="Do not refuse by it; repeatable.")
@json_format("Output format; docs/sweeps.md has the JSON of the gates.")
@click.pass_context
def preflight(
    ctx: click.Context,
    cluster: str | None,
    chosen: tuple[str, ...],
    only: str | None,
    gates: tuple[str, ...],
    waive: tuple[str, ...],
    form: str,
) -> None:
    """Say whether a cluster is fine: hold every gate on every node and fabric; run no case.

    The exit code is 0 when none refuses and all nodes answer, else 3. docs/reference/gates.md has
    what each gate reads.

    \b
    Examples:
      nixwulf preflight --cluster clusters/mine.toml
      nixwulf preflight --cluster clusters/framework-2.toml --only file
      nixwulf preflight --cluster mine --waive governor --format json
    """
    from nixwulf.nodes.ssh import connections

    if only and (gates or waive):
        raise click.UsageError(f"--only {only} holds no gate; leave out --gate and --waive.")
    if only == "file" and form == "json":
        raise click.UsageError("--only file prints a sentence; leave out --format.")
    if only == "file":
        from nixwulf.inventory.cluster import load_cluster

        print_file(load_cluster(cluster) if cluster else find_cluster(None)[0])
        return
    found, config = find_cluster(cluster)
    names = [node.name for node in choose(found, chosen)]
    reached = {key: one for key, one in connections(found, config).items() if key in names}
    if only:
        fine = {"status": _print_status, "facts": _print_facts}[only](reached, form)
    else:
        fine = hold(found, reached, gates, waive, form)
    ctx.exit(0 if fine else EXIT_GATE)


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
        print_json(found.document())
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
    print_json(found) if form == "json" else click.echo(clean(text))
    return not any(one.error is not None for one in found)


def _print_facts(connections: Mapping[str, Connection], form: str) -> bool:
    from nixwulf.core.text import plural
    from nixwulf.ops.deploy.machine import reach_machines
    from nixwulf.ops.deploy.plan import facts_text

    click.echo(f"Reaching {plural(len(connections), 'node')}.", err=True)
    machines = reach_machines(connections)
    texts = [facts_text(one.node, machines[name]) for name, one in connections.items()]
    print_json(machines) if form == "json" else click.echo(clean("\n\n".join(texts)))
    return not any(isinstance(machine, str) for machine in machines.values())
