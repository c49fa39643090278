"""What a plan takes of the machine that nixwulf runs on, and only with its user's consent.

A sweep, a recipe or the folder of a run may be somebody else's: what it names of this environment,
and where that is sent to, is the user's to allow.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nixwulf.core import web
from nixwulf.core.errors import InputError
from nixwulf.core.files import cache_dir, sha256_of
from nixwulf.core.text import clean
from nixwulf.inventory.cluster import Cluster
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.case import Case
from nixwulf.sweep.plan import Plan

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Consent:
    """What the command line allows: variables of this environment, and hosts, by their names."""

    secrets: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    def options(self) -> str:
        """As options of a command line, each after a space."""
        given = [("--allow-secrets", self.secrets), ("--allow-url", self.hosts)]
        words = [(option, name) for option, names in given for name in sorted(names)]
        return "".join(f" {option} {shlex.quote(name)}" for option, name in words)


def needed(plan: Plan, *, own_cluster: bool = True) -> Consent:
    """The variables that a plan's cases take, and the hosts outside of its cluster that it asks.

    own_cluster: whether the user named the cluster file. Of another one the nodes, meters and
    relays are addresses of somebody else too.
    """
    cases = [case.parameters for case in plan.cases]
    secrets = {
        name
        for parameters in cases
        for name, value in passthrough.given_variables(parameters).items()
        if value is None
    }
    hosts = _hosts(addresses(plan))
    if own_cluster:
        ends = (end.address for node in plan.cluster.nodes for end in node.all_ends)
        hosts -= _hosts(ends) | _logins(plan.cluster)
        return Consent(frozenset(secrets), frozenset(hosts - _LOOPBACK))
    for node in plan.cluster.nodes:
        hosts |= {
            web.host_of(one.url) for one in (node.meter, node.power_switch) if one and one.url
        }
    if not plan.cluster.is_lab:
        hosts |= _logins(plan.cluster)
    return Consent(frozenset(secrets), frozenset(hosts - _LOOPBACK))


def remember(plan_file: Path) -> None:
    """Keep that a plan was made here, with a cluster that its user named."""
    with suppress(OSError):
        _plans().parent.mkdir(parents=True, exist_ok=True)
        with _plans().open("a", encoding="ascii") as file:
            file.write(f"{sha256_of(plan_file)}\n")


def is_own(plan_file: Path) -> bool:
    """Whether a plan was made here, and is as it was."""
    try:
        return sha256_of(plan_file) in _plans().read_text("ascii", "replace").split()
    except OSError:
        return False


def _plans() -> Path:
    return cache_dir() / "plans"


def addresses(plan: Plan) -> list[str]:
    """The addresses of servers that a plan's cases name, each once."""
    return _each(plan, passthrough.addresses)


def active(plan: Plan) -> list[str]:
    """What of a plan's cases runs code, or takes what is the user's, each once."""
    return [clean(line) for line in _each(plan, passthrough.active)]


def _each(plan: Plan, of: Callable[[Mapping[str, Any]], list[str]]) -> list[str]:
    return list(dict.fromkeys(one for case in plan.cases for one in of(case.parameters)))


def in_clear(cases: Iterable[Case]) -> list[str]:
    """The addresses that get a key over a network by http, which anybody on the way reads."""
    keyed = [
        case.parameters["url"]
        for case in cases
        if case.parameters.get("url")
        and None in passthrough.given_variables(case.parameters).values()
    ]
    return list(filter(web.in_clear, dict.fromkeys(keyed)))


def require(plan: Plan, allowed: Consent, *, own_cluster: bool = True) -> None:
    """Raise InputError where a plan takes what was not allowed, with the command that allows it."""
    wanted = needed(plan, own_cluster=own_cluster)
    secrets, hosts = wanted.secrets - allowed.secrets, wanted.hosts - allowed.hosts
    if not secrets and not hosts:
        return
    takes = [f"takes {name} from this environment" for name in sorted(secrets)]
    where = "is not in the cluster" if own_cluster else "no cluster file that you named has"
    takes += [f"asks {host!r}, which {where}" for host in sorted(hosts)]
    to = (
        f" and sends to {', '.join(map(repr, addresses(plan)))}"
        if secrets and addresses(plan)
        else ""
    )
    command = shlex.join(["nixwulf", *sys.argv[1:]])
    raise InputError(
        f"{plan.sweep.source} {' and '.join(takes)}{to}; if that is what you want, repeat it with "
        f"'{command}{Consent(secrets, hosts).options()}'."
    )


def _logins(cluster: Cluster) -> set[str]:
    return _hosts(node.ssh.rpartition("@")[2] for node in cluster.nodes if node.ssh)


def _hosts(names: Iterable[str]) -> set[str]:
    """Of URLs, or of hosts with a port or without; what is neither, as it is."""
    return set(map(_host, names))


def _host(name: str) -> str:
    bare = name.count(":") > 1 and "[" not in name and "/" not in name
    try:
        return web.host_of(name if "://" in name else f"//[{name}]" if bare else f"//{name}")
    except ValueError:
        return name
