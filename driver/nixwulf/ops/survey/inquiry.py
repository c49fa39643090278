"""The inquiry: what machines say, then who reaches whom, and the cluster file that follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nixwulf.core.text import plural
from nixwulf.nodes.ssh import Connection
from nixwulf.ops.survey.draft import Draft, draft
from nixwulf.ops.survey.machines import Surveyed
from nixwulf.ops.survey.reach import Pair, Reach, groups, pairs_between, pairs_to_try, try_pairs
from nixwulf.ops.survey.wires import candidates, wires


def inquire(
    name: str,
    machines: Sequence[Surveyed],
    connections: Mapping[str, Connection],
    on_step: Callable[[str], None],
) -> Draft:
    """Find the wires between machines that have answered, and draft their cluster file.

    Args:
        machines: what they reported, with the names that the file gives them.
        connections: to each, by that name.
    """

    def tried(pairs: Sequence[Pair]) -> Reach:
        if not pairs:
            return Reach()
        on_step(f"Trying {plural(len(pairs), 'pair')} of interfaces, in both directions.")
        return try_pairs(pairs, connections)

    endpoints, left = candidates(machines)
    reach = tried(pairs_to_try(endpoints))
    reach = reach.joined(tried(pairs_between(groups(endpoints, reach), reach)))
    found, apart = wires(machines, endpoints, reach)
    return draft(name, machines, found, [*left, *apart])


def renamed(machines: Sequence[Surveyed], names: Sequence[str]) -> list[Surveyed]:
    """The same machines under other names."""
    return [
        replace(machine, node=replace(machine.node, name=name))
        for machine, name in zip(machines, names, strict=True)
    ]
