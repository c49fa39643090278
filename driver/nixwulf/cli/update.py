"""nixwulf update: switch deployed nodes to what the flake defines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nixwulf.cli.options import choose, machines, only_nodes, report
from nixwulf.cli.options import expect_cluster as expect_cluster_option
from nixwulf.cli.options import flake as flake_option
from nixwulf.cli.options import prebuilt as prebuilt_option
from nixwulf.core.errors import EXIT_GATE, EXIT_RUN_FAILED, InputError, one_line

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster, Node
    from nixwulf.ops.deploy.install import Target


@click.command()
@machines
@only_nodes
@click.option("--dry-run", is_flag=True, help="Print the commands, and reach no node.")
@flake_option
@prebuilt_option
@click.option(
    "--rollback", is_flag=True, help="Go back to the generation before the present one; no build."
)
@click.option(
    "--rollback-after",
    "seconds",
    type=click.IntRange(min=30),
    default=300,
    show_default=True,
    help="Seconds after which a node goes back that the driver did not get into again.",
)
@expect_cluster_option
@click.pass_context
def update(
    ctx: click.Context,
    name: str,
    chosen: tuple[str, ...],
    dry_run: bool,
    flake: str,
    prebuilt_file: Path | None,
    rollback: bool,
    seconds: int,
    expect_cluster: str | None,
) -> None:
    """Switch deployed nodes to what the flake defines: build once, copy to all, activate on all.

    A node that cannot be reached again over a new connection, or on which a unit fails, goes back
    to its old system by itself. Kernels change with the next reboot, and it names the nodes.

    \b
    Examples:
      nixwulf update --cluster clusters/mine.toml --dry-run
      nixwulf update --cluster clusters/mine.toml --node mini2
      nixwulf update --cluster clusters/mine.toml --prebuilt result
      nixwulf update --cluster clusters/mine.toml --node mini2 --rollback
    """
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.inventory.platforms import is_macos
    from nixwulf.ops.deploy.flake import attribute, check_reference, lacks_nix
    from nixwulf.ops.deploy.plan import check_deployable, darwin_steps

    cluster = load_cluster(name)
    check_deployable(cluster)
    check_reference(flake)
    nodes = choose(cluster, chosen)
    if rollback and prebuilt_file:
        raise InputError(
            f"--rollback takes a system that the node has, and --prebuilt {str(prebuilt_file)!r} "
            "names another; give one of the two."
        )
    lacking = None if rollback else lacks_nix()
    if lacking:
        raise InputError(f"Systems cannot be built or copied here, because {lacking}.")
    linux = [node for node in nodes if not is_macos(node.platform)]
    for node in nodes:
        if node not in linux:
            steps = darwin_steps(flake, node, attribute(cluster, node))
            if rollback:
                steps = [f"ssh {node.ssh} sudo darwin-rebuild --rollback"]
            click.echo("\n  ".join([f"{node.name}: by hand, with nix-darwin:", *steps]))
    if not linux:
        return
    built = rollback or prebuilt_file is not None
    targets = _targets(cluster, linux, flake, prebuilt_file, built=built)
    if dry_run:
        _print_commands(targets, seconds)
        return
    targets, failures = _bring(cluster, targets, expect_cluster)
    if failures:
        for words in failures:
            click.echo(words, err=True)
        click.echo("No node was switched; choose those that answer with --node.", err=True)
        ctx.exit(EXIT_GATE)
    ctx.exit(_switch(targets, seconds))


def _targets(
    cluster: Cluster, nodes: Sequence[Node], flake: str, prebuilt_file: Path | None, *, built: bool
) -> list[Target]:
    """Nodes with the systems that they are to run; built: of --prebuilt, or what each had before.

    What a node had before is asked later, and its path is empty until then.
    """
    from nixwulf.inventory.platforms import load_platform
    from nixwulf.nodes.ssh import connections
    from nixwulf.ops.deploy.flake import (
        Built,
        attribute,
        installable,
        load_prebuilt,
        systems,
        systems_built_here,
    )
    from nixwulf.ops.deploy.install import Target

    names = {node.name: attribute(cluster, node) for node in nodes}
    found = dict.fromkeys(names.values(), Built(None, ""))
    if prebuilt_file:
        made = load_prebuilt(prebuilt_file, cluster, nodes).nodes
        found = {names[n]: Built(None, made[n].system, made[n].layout) for n in names}
    elif not built:
        found = systems(flake, list(names.values()))
    local, reach = set() if built else systems_built_here(), connections(cluster)
    return [
        Target(
            reach[node.name],
            found[names[node.name]],
            "" if built else installable(flake, names[node.name]),
            here=built or load_platform(node.platform)["system"] in local,
        )
        for node in nodes
    ]


def _print_commands(targets: Sequence[Target], seconds: int) -> None:
    from nixwulf.ops.deploy import install as updating

    build = updating.build_command(targets)
    if build:
        click.echo(shlex.join(build))
    bring = [target for target in targets if target.system.path]
    for target in bring:
        click.echo(shlex.join(updating.bring_command(target)))
    names = ", ".join(target.node.name for target in targets)
    what = "Then on {}: activate it" if bring else "On {}: activate the generation before"
    click.echo(
        f"{what.format(names)}, reach the node over a new connection, and keep it; or go "
        f"back after {seconds} s."
    )


def _bring(
    cluster: Cluster, targets: list[Target], expect_cluster: str | None
) -> tuple[list[Target], list[str]]:
    """Build once and copy to all, or find what nodes had before; and why a node has no system.

    Nothing is built when a node does not answer, is being measured, or is another cluster's.
    """
    from nixwulf.core.text import plural
    from nixwulf.nodes.ssh import open_all
    from nixwulf.ops.deploy import install as updating
    from nixwulf.ops.deploy.flake import build_here

    failures = list(open_all(target.connection for target in targets).values())
    failures = failures or updating.unfit(cluster, targets, expect_cluster)
    if failures:
        return targets, failures
    if not targets[0].system.path:
        return updating.previous(targets)
    build = updating.build_command(targets)
    if build:
        click.echo(f"Building for {plural(len(targets), 'node')}.", err=True)
        build_here(build, "The systems are")
    click.echo(f"Copying to {plural(len(targets), 'node')}.", err=True)
    return targets, updating.bring_all(targets)


def _switch(targets: Sequence[Target], seconds: int) -> int:
    from nixwulf.ops.deploy import install as updating

    results = updating.switch_all(targets, seconds, report)
    for result in results:
        click.echo(one_line(updating.sentence(result)), err=result.state not in updating.GOOD)
    reboots = [result.node.name for result in results if result.reboot]
    if reboots:
        click.echo(f"A reboot is needed for kernel or initrd: {', '.join(reboots)}.")
    states = {result.state for result in results}
    if states <= updating.GOOD:
        return 0
    if states & updating.GOOD:
        click.echo("The nodes now run different systems: update again.", err=True)
    return EXIT_GATE if states <= {"refused", *updating.GOOD} else EXIT_RUN_FAILED
