"""What is to be served, tried out first: one short run of it with facts, gates and the text check.

The run starts the engine as a benchmark does, and its record says by which commands. Those are then
started once more to stay. So whatever a sweep can run can be served, and each service has a record
of its own nodes, from which the limits of its watch are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nixwulf.core.errors import GateError, InputError, NixwulfError
from nixwulf.core.files import find_input, is_there, read_yaml
from nixwulf.core.text import as_typed, plural
from nixwulf.inventory.cluster import Cluster, Node
from nixwulf.nodes import container
from nixwulf.plugins import engines
from nixwulf.plugins.engines import Engine
from nixwulf.plugins.engines.serving import Serving, Started, measured_run
from nixwulf.plugins.runtime import passthrough
from nixwulf.plugins.runtime.case import Case
from nixwulf.plugins.runtime.openai import GREEDY, longest_request
from nixwulf.plugins.runtime.openai_stream import PATHS
from nixwulf.plugins.runtime.run import servers_of
from nixwulf.results.record import Record, load, save
from nixwulf.results.store import read_folder
from nixwulf.sweep import consent
from nixwulf.sweep.plan import (
    COORDINATES,
    OF_EVERY_ENGINE,
    Plan,
    Sweep,
    make_plan,
    parse_sweep,
    save_plan,
)
from nixwulf.sweep.recipes.as_sweep import is_recipe, read_recipes, sweep_text
from nixwulf.sweep.reproduce.conditions import sweep_of_run
from nixwulf.sweep.serve.service import (
    LOOPBACK,
    Host,
    ServedGroup,
    Service,
    UnitOfServer,
    limits_of,
    moment,
)
from nixwulf.sweep.session import Observer, Session, record_path, run_one

_BENCHMARK = "serve"
# A prompt that is too short shows no prefill, and a short answer has times between its tokens.
_LEAST_PROMPT, _ANSWER = 16, 32
_HOST, _PORT = "--host", "--port"
_CANARY_TOKENS = 8


@dataclass(frozen=True)
class Wish:
    """What the command line asks for.

    slots: requests at once; context: tokens of each with its answer; 0: as the case has it. port:
    of the URL, 0: the engine's own. address: of the head, where others reach the URL; closed:
    whether it asks for a key.
    """

    target: str
    only: str = ""
    name: str = ""
    slots: int = 0
    context: int = 0
    port: int = 0
    waived: tuple[str, ...] = ()
    address: str = LOOPBACK
    closed: bool = False


@dataclass(frozen=True)
class UnitCommand:
    """What a unit runs on a node."""

    unit: str
    node: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]


def plan_of(wish: Wish, sweep: Sweep, cluster: Cluster) -> Plan:
    """The plan of the trial: the one case of what is wished for, with a short load.

    Raises InputError: it has several cases, or one that cannot be served.
    """
    plan = make_plan(sweep, cluster, wish.only, wish.waived)
    if len(plan.cases) > 1:
        raise InputError(
            f"{wish.target!r} has {plural(len(plan.cases), 'case')} on {cluster.name!r}; choose "
            "one by --only, such as --only 'nodes=2'; 'nixwulf bench --dry-run' lists them."
        )
    (case,) = plan.cases
    _require_servable(case)
    consent.require(plan, consent.Consent())
    document = {
        "name": _BENCHMARK,
        "models": plan.sweep.document["models"],
        "matrix": _matrix(case, wish),
        "samples": 1,
        "warm_up": False,
        "seed": case.seed,
        "sanity": plan.sweep.document.get("sanity", "short"),
        "limits": vars(plan.sweep.limits),
    }
    return make_plan(parse_sweep(document, wish.target), cluster, "", wish.waived)


def sweep_of(target: str) -> Sweep:
    """The sweep of a file, a recipe or the folder of a run; raises InputError for none of them."""
    path = Path(target)
    if path.is_dir():
        return sweep_of_run(read_folder(path))
    if not is_there(path) or path.suffix in (".yaml", ".yml"):
        file = find_input(target, "sweeps", ".yaml")
        document = read_yaml(file, aliases=True)
        if isinstance(document, dict) and "matrix" in document:
            return parse_sweep(read_yaml(file), str(file))
        path = file
    if not is_recipe(path):
        raise InputError(
            f"{target!r} is no sweep, recipe or folder of a run; give such a file, as 'nixwulf "
            "tune' leaves best.yaml."
        )
    import yaml

    return parse_sweep(
        yaml.safe_load(sweep_text(read_recipes(path), path.stem, str(path))), str(path)
    )


def _require_servable(case: Case) -> None:
    """Raise InputError for a case that starts no server, or needs what nobody keeps for it."""
    values = passthrough.given_variables(case.parameters)
    if case.engine is None:
        why = f"benchmark {case.benchmark!r} starts no engine; give a case with engine and model"
    elif engines.find(case.engine).elsewhere:
        why = f"engine {case.engine!r} is a server that already runs; whoever started it keeps it"
    elif toolbox := case.parameters.get(container.NAME):
        why = f"toolbox {toolbox!r} is not kept by serve yet; take a case without one"
    elif names := sorted(name for name, value in values.items() if value is None):
        why = f"variable {names[0]} is of this environment; set it on the nodes, and leave it out"
    else:
        return
    raise InputError(f"The case cannot be served: its {why}.")


def _matrix(case: Case, wish: Wish) -> dict[str, object]:
    """The case as a matrix of one point, whose load is the longest request in every slot."""
    engine = engines.find(case.engine or "")
    own = {*engine.parameters, *OF_EVERY_ENGINE, "servers"}
    kept = {key: value for key, value in case.parameters.items() if key in own}
    slots = max(wish.slots or case.parameters.get("concurrency", 1), servers_of(case.document()))
    context = wish.context or longest_request(case.parameters)
    load = {
        "concurrency": slots,
        "requests": slots,
        "n_prompt": max(_LEAST_PROMPT, context - _ANSWER),
        "n_gen": _ANSWER,
        "api": engine.apis[0],
    }
    point = {**case.document(), "benchmark": _BENCHMARK}
    return {
        **{key: [point[key]] for key in COORDINATES if key in point},
        "parameters": {key: [value] for key, value in {**kept, **load}.items()},
    }


def measure(plan: Plan, opened: Session, folder: Path, observer: Observer) -> Record:
    """The record of the trial, which is ok, also kept in a folder for 'nixwulf report'.

    Raises:
        GateError: A gate refused.
        NixwulfError: It failed otherwise.
    """
    (case,) = plan.cases
    save_plan(plan, folder / "plan.json")
    observer.sweep_starts([(case, 0)])
    observer.run_starts(case, 0)
    record = run_one(opened, plan, folder, case, 0, observer.phase_starts)
    path = record_path(folder, case, 0)
    save(record, path)
    if record["outcome"] != "ok":
        failure = record["failure"]
        error = GateError if failure["phase"] == "gates" else NixwulfError
        raise error(
            f"It is not served, for its trial ended {record['outcome']}: {failure['reason']} See "
            f"{as_typed('report', folder)}."
        )
    return load(path)


def service_of(record: Record, plan: Plan, wish: Wish) -> tuple[Service, list[UnitCommand]]:
    """What stays, by the commands of a trial's record; raises NixwulfError where it cannot."""
    (case,) = plan.cases
    cluster, engine = plan.cluster, engines.find(case.engine or "")
    run = measured_run(engine, record, cluster, case.parameters["concurrency"])
    alone = list(run.alone()) if servers_of(run.case) > 1 else [run]
    proxied = len(alone) > 1 or wish.closed
    port = wish.port or engine.api_port
    groups: list[ServedGroup] = []
    commands: list[UnitCommand] = []
    for one in alone:
        serving = engine.serve_commands(one)
        if serving.before:
            raise NixwulfError(
                f"{engine.name} reads {serving.before[0].path!r} on its nodes, which serve does "
                "not write yet."
            )
        host = _address(cluster, alone[0].head, serving.head) if len(alone) > 1 else LOOPBACK
        own = _commands(serving, host, port + proxied)
        units = tuple(UnitOfServer(each.unit, each.node) for each in own)
        model = _model(record, own[-1], engine)
        needs = model if model.startswith("/") else ""
        groups.append(ServedGroup(serving.head, host, port + proxied, units, engine.ports, needs))
        commands += own
    heads = {one.node: group.head for group in groups for one in group.units}
    hosts = [_host(node, heads[node.name], case, cluster) for node in case.nodes_of(cluster)]
    service = Service(
        name=wish.name,
        cluster=cluster.name,
        created=moment(),
        engine=engine.name,
        model=model,
        called=model,
        case=record["case"],
        record=record["id"],
        port=port,
        proxied=proxied,
        hosts=tuple(hosts),
        groups=tuple(groups),
        limits=limits_of(record),
        canary=_canary(engine, model),
        metrics_port=port + proxied + 1,
        address=wish.address,
        closed=wish.closed,
    )
    return service, commands


def _model(record: Record, answers: UnitCommand, engine: Engine) -> str:
    """The path or the name of the model; of random weights, as a record has none, of its argv."""
    known = record["model"].get("file") or record["model"].get("hub")
    words = (word for word in answers.argv if word.endswith(engine.model_suffixes or ("/",)))
    return str(known or next(words, ""))


def _commands(serving: Serving, host: str, port: int) -> list[UnitCommand]:
    """The units of a server, in the order of starting: the one that answers comes last."""
    servers = [*serving.servers]
    answers = [one for one in servers if one.node == serving.head][-1]
    servers.remove(answers)
    found: list[UnitCommand] = []
    for one in (*servers, _listening(answers, host, port)):
        names = {command.unit for command in found}
        unit = next(
            name
            for count in range(len(servers) + 1)
            if (name := f"{one.node}-{one.program}{f'-{count + 1}' if count else ''}") not in names
        )
        found.append(UnitCommand(unit, one.node, one.argv, one.environment))
    return found


def _listening(server: Started, host: str, port: int) -> Started:
    """A server on another address; raises NixwulfError where its command line has none."""
    words = list(server.argv)
    for flag, value in ((_HOST, host), (_PORT, str(port))):
        if flag in words[:-1]:
            words[words.index(flag) + 1] = value
        elif flag == _PORT or host != LOOPBACK:
            raise NixwulfError(
                f"{server.program!r} is started without {flag}, so that it listens nowhere else; "
                "leave --port out, and take one server."
            )
    return replace(server, argv=tuple(words))


def _address(cluster: Cluster, first: str, node: str) -> str:
    """Where nginx on the first node reaches a node; raises InputError where no fabric does."""
    if node == first:
        return LOOPBACK
    own = next(one for one in cluster.nodes if one.name == node)
    for fabric in cluster.fabrics:
        if end := own.end_to(fabric, first):
            return end.address
    raise InputError(
        f"{cluster.source}: no fabric joins {first!r} and {node!r}, over which one URL could lead "
        "to both; add it to the cluster file."
    )


def _host(node: Node, head: str, case: Case, cluster: Cluster) -> Host:
    """A node of a case; head: that of its server, which reaches it over the fabric."""
    others = [other.name for other in case.nodes_of(cluster) if other is not node]
    ends = node.ends(case.fabric, others) if case.fabric else ()
    near = node.end_to(case.fabric or "", head)
    return Host(
        node.name,
        node.ssh,
        node.host_key,
        near.address if near and node.name != head else "",
        tuple(end.interface for end in ends),
        tuple(device for end in ends for device in end.rdma_devices),
    )


def _canary(engine: Engine, model: str) -> tuple[str, Mapping[str, object]]:
    """A request that every server of an engine answers in a moment, the same each time."""
    body: dict[str, object] = {"model": model, "max_tokens": _CANARY_TOKENS, "temperature": 0}
    api = engine.apis[0]
    asked = {"messages": [{"role": "user", "content": GREEDY}]} if api == "chat" else {}
    return PATHS[api], {**body, **(asked or {"prompt": GREEDY})}
