"""Which lab, which nodes: what commands that take no or any cluster mean."""

from __future__ import annotations

import os
from collections.abc import Sequence

from nixwulf.cluster import load_cluster
from nixwulf.errors import InputError
from nixwulf.lab.handle import Lab, labs
from nixwulf.ssh import Connection, connections


def free_name() -> str:
    """A name for a lab that lives as long as this process."""
    return f"bench-{os.getpid()}"


def only_lab() -> Lab:
    """The one lab that is up; raises InputError when there is none or more than one."""
    found = [lab for lab in labs() if lab.is_up]
    if not found:
        raise InputError("No lab is up; bring one up with: nixwulf lab up")
    if len(found) > 1:
        names = ", ".join(lab.name for lab in found)
        raise InputError(f"More than one lab is up ({names}); name one with --name.")
    return found[0]


def connections_of(cluster: str | None, chosen: Sequence[str]) -> list[Connection]:
    """Connections to the chosen nodes (none: all) of a cluster file, or of the lab that is up."""
    if cluster is None:
        lab = only_lab()
        found = connections(lab.cluster, lab.ssh_config)
    else:
        found = connections(load_cluster(cluster))
    for name in chosen:
        if name not in found:
            raise InputError(f"No node {name!r}; the nodes are: {', '.join(found)}.")
    return [found[name] for name in chosen or found]
