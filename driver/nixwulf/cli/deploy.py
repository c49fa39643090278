"""nixwulf deploy and update: image nodes, and switch those that are to what the flake defines."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nixwulf.cli import options
from nixwulf.core.errors import EXIT_GATE, EXIT_INTERRUPTED, EXIT_RUN_FAILED, InputError, one_line
from nixwulf.core.text import plural

if TYPE_CHECKING:
    from nixwulf.inventory.cluster import Cluster, Node
    from nixwulf.nodes.ssh import Connection
    from nixwulf.ops.deploy.flake import Prebuilt
    from nixwulf.ops.deploy.install import Target
    from nixwulf.ops.deploy.plan import DeployPlan, NodePlan


@click.command()
@options.machines
@options.only_nodes
@click.option("--phase", type=click.Choice(["install", "verify"]), help="Only this phase.")
@options.dry_run
@options.json_format("Of a dry run's plan.")
@options.flake
@options.repeatable("--yes-wipe", "NAME", "Wipe this node without asking")
@options.repeatable("--expect", "NODE=HOSTNAME", "The node's present host name, if not NODE")
@options.expect_cluster
@options.prebuilt
@options.path(
    "--extra-files", "Copy what is in this folder to the root of each new system, owned by root."
)
@options.timeout(7200.0, "How long an installation may take.", "--install-timeout", "limit_s")
@options.timeout(600.0, "How long to wait for installed nodes to boot.", "--boot-timeout", "wait_s")
def deploy(
    name: str,
    chosen: tuple[str, ...],
    phase: str | None,
    dry_run: bool,
    form: str,
    flake: str,
    yes_wipe: tuple[str, ...],
    expect: tuple[str, ...],
    expect_cluster: str | None,
    prebuilt_file: Path | None,
    extra_files: Path | None,
    limit_s: float,
    wait_s: float,
) -> None:
    """Image the nodes of a cluster: facts first, then the plan, then each node's name typed.

    The disk that the cluster file names is WIPED on every node that is installed. If any node is
    refused or does not answer, nothing is done to any; --node leaves nodes out.

    \b
    Examples:
      nixwulf preflight --cluster clusters/mine.toml --only facts
      nixwulf deploy --cluster clusters/mine.toml --dry-run
      nixwulf deploy --cluster clusters/mine.toml --node mini1 --yes-wipe mini1
    """
    from nixwulf.inventory.cluster import load_cluster
    from nixwulf.inventory.platforms import is_macos
    from nixwulf.nodes.ssh import connections
    from nixwulf.ops.deploy.flake import check_reference, load_prebuilt
    from nixwulf.ops.deploy.install import check_extra_files
    from nixwulf.ops.deploy.plan import check_deployable, new_to_others, plan_text

    if form == "json" and (phase or not dry_run):
        raise click.UsageError("--format json is of --dry-run.")
    cluster = load_cluster(name)
    check_deployable(cluster)
    check_reference(flake)
    if extra_files is not None:
        check_extra_files(extra_files)
    nodes = options.choose(cluster, chosen)
    names = {node.name for node in nodes}
    expected = _expectations(expect, yes_wipe, names)
    linux = [n for n in nodes if not is_macos(n.platform)]
    prebuilt = load_prebuilt(prebuilt_file, cluster, linux) if prebuilt_file else None
    found = {key: c for key, c in connections(cluster).items() if key in names}
    if phase == "verify":
        paths = _paths(flake, cluster, nodes, prebuilt)
        options.end(_verify(cluster, list(found.values()), paths, 0))
    plan = _plan(
        cluster, flake, nodes, expected, expect_cluster, found, prebuilt, extra_files, dry_run
    )
    if form == "json":
        options.print_json(vars(plan) | {"cluster": name}, "deployment")
    else:
        click.echo(plan_text(plan))
    if dry_run:
        options.end(EXIT_GATE if plan.refusals else 0)
    confirmed = _confirm(plan, yes_wipe)
    code = _install(cluster, flake, confirmed, found, limit_s) if confirmed else 0
    left_out = [node for node in plan.nodes if node.method != "check" and node not in confirmed]
    for node in left_out:
        options.tell(f"Node {node.node.name!r} was not installed; see the plan above.")
    code = code or (EXIT_GATE if left_out else 0)
    if phase is None and not code:
        paths = _paths(flake, cluster, nodes, prebuilt)
        code = _verify(cluster, list(found.values()), paths, wait_s)
        if lacking := new_to_others(cluster, [node.node.name for node in confirmed]):
            click.echo(lacking)
    options.end(code)


def _expectations(given: Sequence[str], yes_wipe: Sequence[str], names: set[str]) -> dict[str, str]:
    """Return today's host names by node; raises InputError for a node that is not chosen."""
    if unknown := [wiped for wiped in yes_wipe if wiped not in names]:
        raise InputError(
            f"--yes-wipe {unknown[0]!r} is not among the nodes chosen: {', '.join(sorted(names))}."
        )
    expected = {}
    for words in given:
        node, mark, hostname = words.partition("=")
        if not mark or not hostname or node not in names:
            raise InputError(
                f"--expect is {words!r}, expected NODE=HOSTNAME with a node of: "
                f"{', '.join(sorted(names))}."
            )
        expected[node] = hostname
    return expected


def _plan(
    cluster: Cluster,
    flake: str,
    nodes: Sequence[Node],
    expected: Mapping[str, str],
    expected_cluster: str | None,
    connections: Mapping[str, Connection],
    prebuilt: Prebuilt | None,
    extra_files: Path | None,
    dry_run: bool,
) -> DeployPlan:
    from nixwulf.core.interrupts import Pool
    from nixwulf.inventory.platforms import load_platform
    from nixwulf.ops.deploy.flake import attribute, lacks_nix, layouts
    from nixwulf.ops.deploy.install import check_programs
    from nixwulf.ops.deploy.machine import local_machine_identity, reach_machines
    from nixwulf.ops.deploy.plan import install_of, make_plan
    from nixwulf.ops.deploy.refusals import locked_out

    platforms: dict[str, dict[str, Any]] = {
        name: install_of({**load_platform(name)}) for name in {node.platform for node in nodes}
    }
    imaged = [
        attribute(cluster, node)
        for node in nodes
        if platforms[node.platform]["install"]["method"] != "check"
    ]
    if not dry_run:
        check_programs(imaged)
    ask = prebuilt is None and lacks_nix() is None
    options.tell(f"Reaching {plural(len(connections), 'node')}.")
    # Evaluating takes as long as a node that does not answer: seconds, so both at once.
    with Pool(1) as pool:
        asked = pool.submit(layouts, flake, imaged) if ask else None
        machines = reach_machines(connections)
    known = asked.result() if asked else None
    if prebuilt is not None:
        known = {
            attribute(cluster, node): own.layout
            for node in nodes
            if (own := prebuilt.nodes.get(node.name))
        }
    elif known is None:
        options.tell(f"The flake is not asked which disks it formats: {lacks_nix()}.")
    return make_plan(
        cluster,
        flake,
        nodes,
        platforms,
        machines,
        expected=expected,
        expected_cluster=expected_cluster,
        layouts=known,
        prebuilt=prebuilt,
        locked_out=locked_out(cluster, connections.values()),
        local_machine=local_machine_identity(),
        extra_files=extra_files,
    )


def _confirm(plan: DeployPlan, yes_wipe: Sequence[str]) -> list[NodePlan]:
    """The nodes whose name was typed, or given with --yes-wipe; ends where the plan refuses one."""
    from nixwulf.ops.deploy.plan import wiping

    if reasons := [*plan.refusals, *plan.unreached]:
        options.tell(*reasons, "Nothing was changed; leave nodes out with --node.")
        options.end(EXIT_GATE)
    unconfirmed = [node for node in plan.to_install if node.node.name not in yes_wipe]
    if unconfirmed and not sys.stdin.isatty():
        given = " ".join(f"--yes-wipe {node.node.name}" for node in unconfirmed)
        raise InputError(f"There is no terminal to confirm at; to wipe these nodes add {given}.")
    confirmed = []
    for node in plan.to_install:
        name = node.node.name
        click.echo(f"{name}: wipes {wiping(node)}")
        question = f"Type {name} to wipe it"
        if name in yes_wipe or click.prompt(question, default="", show_default=False) == name:
            confirmed.append(node)
        else:
            options.tell(f"That is not {name!r}: it is left out.")
    return confirmed


def _install(
    cluster: Cluster,
    flake: str,
    plans: Sequence[NodePlan],
    connections: Mapping[str, Connection],
    limit_s: float,
) -> int:
    from nixwulf.ops.deploy.install import build_installers, install

    build_installers(plans, flake)
    started = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = Path("runs") / f"deploy-{cluster.name}-{started}"
    options.tell(f"Installing {plural(len(plans), 'node')}; logs are in {folder}.")
    try:
        failures = install(plans, connections, folder, options.report, limit_s)
    except KeyboardInterrupt:
        options.tell(
            "Interrupted: a node that was being installed may have no system; run the same "
            "command again."
        )
        return EXIT_INTERRUPTED
    options.tell(*filter(None, failures.values()))
    return EXIT_RUN_FAILED if any(failures.values()) else 0


def _paths(
    flake: str, cluster: Cluster, nodes: Sequence[Node], prebuilt: Prebuilt | None
) -> dict[str, str]:
    """The store path of each node's system; empty where the flake is asked and nix is not here."""
    from nixwulf.inventory.platforms import is_macos
    from nixwulf.ops.deploy.flake import attribute, lacks_nix, systems

    if prebuilt is not None:
        return {name: own.system for name, own in prebuilt.nodes.items()}
    if lacks_nix():
        options.tell(f"The systems are not compared with the flake's: {lacks_nix()}.")
        return {}
    paths: dict[str, str] = {}
    for darwin in (False, True):
        of_kind = [node for node in nodes if is_macos(node.platform) is darwin]
        found = systems(flake, [attribute(cluster, node) for node in of_kind], darwin=darwin)
        paths |= {node.name: found[attribute(cluster, node)].path for node in of_kind}
    return paths


def _verify(
    cluster: Cluster, connections: Sequence[Connection], paths: Mapping[str, str], wait_s: float
) -> int:
    from nixwulf.ops.deploy.machine import verify
    from nixwulf.ops.deploy.plan import verified_text

    if wait_s:
        options.tell(f"Waiting up to {wait_s:.0f} s for the nodes to come back.")
    found = verify(cluster, connections, paths, wait_s)
    click.echo(verified_text(found))
    problems = [problem for one in found for problem in one.problems]
    options.tell(*problems)
    return EXIT_GATE if problems else 0


@click.command()
@options.machines
@options.only_nodes
@click.option("--dry-run", is_flag=True, help="Print the commands, and reach no node.")
@options.flake
@options.prebuilt
@click.option(
    "--rollback", is_flag=True, help="Go back to the generation before the present one; no build."
)
@options.defaulting(
    "--rollback-after",
    "seconds",
    type=click.IntRange(min=30),
    default=300,
    help="Seconds after which a node that the driver cannot reach goes back.",
)
@options.expect_cluster
def update(
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
    nodes = options.choose(cluster, chosen)
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
        options.tell(*failures, "No node was switched; choose those that answer with --node.")
        options.end(EXIT_GATE)
    options.end(_switch(targets, seconds))


def _targets(
    cluster: Cluster, nodes: Sequence[Node], flake: str, prebuilt_file: Path | None, *, built: bool
) -> list[Target]:
    """Pair nodes with systems: of --prebuilt, or what each had before, asked later (empty path)."""
    from nixwulf.inventory.platforms import load_platform
    from nixwulf.nodes.ssh import connections
    from nixwulf.ops.deploy import flake as flakes
    from nixwulf.ops.deploy.install import Target

    names = {node.name: flakes.attribute(cluster, node) for node in nodes}
    found = dict.fromkeys(names.values(), flakes.Built(None, ""))
    if prebuilt_file:
        made = flakes.load_prebuilt(prebuilt_file, cluster, nodes).nodes
        found = {names[n]: flakes.Built(None, made[n].system, made[n].layout) for n in names}
    elif not built:
        found = flakes.systems(flake, list(names.values()))
    local, reach = set() if built else flakes.systems_built_here(), connections(cluster)
    return [
        Target(
            reach[node.name],
            found[names[node.name]],
            "" if built else flakes.installable(flake, names[node.name]),
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
        options.tell(f"Building for {plural(len(targets), 'node')}.")
        build_here(build, "The systems are")
    options.tell(f"Copying to {plural(len(targets), 'node')}.")
    return targets, updating.bring_all(targets)


def _switch(targets: Sequence[Target], seconds: int) -> int:
    from nixwulf.ops.deploy import install as updating

    results = updating.switch_all(targets, seconds, options.report)
    for result in results:
        click.echo(one_line(updating.sentence(result)), err=result.state not in updating.GOOD)
    reboots = [result.node.name for result in results if result.reboot]
    if reboots:
        click.echo(f"A reboot is needed for kernel or initrd: {', '.join(reboots)}.")
    states = {result.state for result in results}
    if states <= updating.GOOD:
        return 0
    if states & updating.GOOD:
        options.tell("The nodes now run different systems: update again.")
    return EXIT_GATE if states <= {"refused", *updating.GOOD} else EXIT_RUN_FAILED
