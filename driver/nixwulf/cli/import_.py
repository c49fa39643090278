"""nixwulf import: records of outputs that other tools left, and sweeps of recipes."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from nixwulf.cli import options
from nixwulf.core.errors import InputError
from nixwulf.core.files import is_there, read_bytes
from nixwulf.core.text import as_typed, clean, did_you_mean, plural
from nixwulf.results.record import Record, load, save

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nixwulf.outputs import Tool
    from nixwulf.results.importing import Reading, UserMetadata


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=options.FilePath())
@click.option(
    "--platform",
    "platforms",
    type=options.PLATFORM,
    metavar="NAME",
    multiple=True,
    help="Platform of the nodes, of outputs; repeatable, for a mixed cluster.",
)
@click.option("--nodes", type=click.IntRange(min=1), help="Number of nodes.")
@click.option("--fabric", metavar="NAME", help="The network between them.")
@click.option(
    "--fabric-kind",
    metavar="KIND",
    help="Its kind, as in a cluster file: roce, usb4-rdma, ... (explain needs it).",
)
@click.option("--transport", type=click.Choice(["tcp", "rdma"]), help="Network transport.")
@click.option(
    "--parallelism", type=click.Choice(["pipeline", "tensor"]), help="How the model was split."
)
@click.option("--engine", metavar="NAME", help="Inference engine behind the endpoint.")
@click.option("--engine-version", metavar="TEXT", help="Its version, where the output lacks it.")
@click.option(
    "--model",
    "models",
    metavar="NAME",
    multiple=True,
    help=(
        "The model, by the name to record; of a file with several once for each, in their order. "
        "Of a recipe, the model to run instead of its own."
    ),
)
@click.option("--quant", metavar="NAME", help="Quantization: Q4_K_M, mxfp4, ...")
@options.defaulting("--cluster", metavar="NAME", default="imported", help="What to call the nodes.")
@click.option("--explain", is_flag=True, help="Show which line gave which number.")
@click.option("--tool", metavar="NAME", help="The tool, where the content does not show it.")
@options.path(
    "--out", "The folder that 'nixwulf report' takes.", default="runs/imported", metavar="DIR"
)
@options.json_format("With json the records are printed, and none is stored.")
def import_(
    files: tuple[Path, ...],
    platforms: tuple[str, ...],
    tool: str | None,
    explain: bool,
    quant: str | None,
    out: Path,
    form: str,
    **given: str | int | tuple[str, ...] | None,
) -> None:
    """Make records of what benchmarks printed, and a sweep of a recipe.

    Give only what the output does not contain; unknown values stay empty. All files are
    checked first: nothing is stored unless all of them can be read. Each run of a file comes in, or
    is named with the line in which it begins; each number of a result is in the record, or is named
    as left out.

    A recipe is YAML of sparkrun, of spark-vllm-docker, of vllm-project/recipes, or of a server's
    flags; or a text with commands such as 'llama-server -m ...' or 'vllm serve ...'. Its sweep is
    printed, and what no sweep has is named on standard error, line by line. A tensor-parallel size
    is as many nodes. Nothing of a recipe is run: one that needs a shell is refused, with its line.

    \b
    Examples:
      nixwulf import recipe.yaml > mine.yaml
      nixwulf import iperf3.json --platform dgx-spark --fabric qsfp
      nixwulf import bench.md --platform framework-desktop --nodes 2 --model gpt-oss-120b \\
        --format json
    """
    ctx = click.get_current_context()
    if _is_recipe(files[0], ctx):
        _print_sweep(ctx, files)
        return
    if not platforms:
        if not is_there(files[0]):
            raise InputError(f"{files[0]}: no such file.")
        if not _recognised(files[0])[1]:
            raise InputError(
                f"{files[0]}: it looks like no tool's output and no recipe that is known; name the "
                "tool with --tool and the nodes with --platform, or paste one command of an engine."
            )
        raise click.UsageError("Missing option '--platform'.")
    from nixwulf.core.registry import choose
    from nixwulf.inventory.fabrics import KINDS
    from nixwulf.results.importing import UserMetadata, require_use

    if given["fabric_kind"]:
        choose(KINDS, str(given["fabric_kind"]), "kind of fabric", "--fabric-kind")
    metadata = UserMetadata(_platforms(platforms), weights=quant, **given)  # type: ignore[arg-type]
    readings = _readings(files, metadata, tool)
    found = {record["id"]: record for reading in readings for record in reading.records}
    require_use(metadata, list(found.values()))
    for reading in readings:
        options.tell(*map(clean, reading.sentences(explain=explain)))
    if form == "json":
        options.print_json(list(found.values()))
        return
    new = [record for record in found.values() if not _is_there(record, out)]
    for record in new:
        save(record, _path(record, out))
        click.echo(f"{_path(record, out)}: {_words(record)}")
    there = f", {len(found) - len(new)} there already" if len(found) > len(new) else ""
    shown = as_typed("report", out)
    click.echo(f"{plural(len(new), 'record')} imported{there}; {shown} shows them.")


def _readings(files: Sequence[Path], metadata: UserMetadata, tool: str | None) -> list[Reading]:
    """Read each file; where one cannot be read, print a sentence for each and end the program."""
    from nixwulf.results.importing import reading_of

    readings, problems = [], []
    for path in files:
        try:
            readings.append(reading_of(path, metadata, tool))
        except InputError as error:
            problems.append(error.format_message())
    options.require_none(problems)
    return readings


def _recognised(path: Path) -> tuple[str, list[Tool]]:
    """The text of a file, and the tools that recognise it; all, where it cannot be read."""
    from nixwulf.outputs import all_tools
    from nixwulf.outputs.runs import decoded, plain
    from nixwulf.results.importing import MOST_BYTES

    tools = list(all_tools().values())
    try:
        text = plain(decoded(read_bytes(path, MOST_BYTES)))
    except (OSError, UnicodeDecodeError, InputError):
        return "", tools
    return text, [one for one in tools if one.recognises(text)]


def _is_recipe(path: Path, ctx: click.Context) -> bool:
    """Tell whether a text is a recipe, and no tool's output below its command."""
    from nixwulf.outputs import ParseError
    from nixwulf.sweep.recipes import MOST_TEXT, is_yaml
    from nixwulf.sweep.recipes.as_sweep import is_recipe

    large = path.is_file() and path.stat().st_size > MOST_TEXT and not is_yaml(path)
    if ctx.params["tool"] or large or not is_recipe(path):
        return False
    text, found = _recognised(path)
    if ctx.params["platforms"] or is_yaml(path):
        return not found or not ctx.params["platforms"]
    for tool in found:
        with contextlib.suppress(ParseError):
            tool.read(text)
            return False
    return True


def _print_sweep(ctx: click.Context, files: Sequence[Path]) -> None:
    """The sweep of a recipe on standard output, and on standard error what it leaves out."""
    from nixwulf.sweep.recipes.as_sweep import active_lines, left_out, read_recipes, sweep_text

    typed = ParameterSource.COMMANDLINE
    for option in ctx.command.params:
        if (
            option.name not in ("files", "models")
            and ctx.get_parameter_source(option.name or "") == typed
        ):
            raise click.UsageError(
                f"{files[0]} is a recipe, whose sweep has no {option.opts[0]}; leave it out."
            )
    if len(files) > 1 or len(ctx.params["models"]) > 1:
        raise click.UsageError("A recipe is imported alone, with one --model at the most.")
    recipes = read_recipes(files[0], *ctx.params["models"])
    click.echo(sweep_text(recipes, files[0].stem, str(files[0])), nl=False)
    for line in dict.fromkeys(line for recipe in recipes for line in active_lines(recipe)):
        options.tell(f"look at this before you run it: {clean(line)}")
    for one in left_out(recipes):
        options.tell(f"left out: {' '.join(clean(one.what).split())}: {one.why}")


def _platforms(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, with a note for one without known facts; raises InputError for an invalid one."""
    from nixwulf.inventory.platforms import platform_names

    known = platform_names()
    for name in dict.fromkeys(names):
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name):
            raise InputError(
                f"--platform {name!r} is no name of small letters, digits and dashes; known: "
                f"{', '.join(known)}."
            )
        if name not in known:
            meant = did_you_mean(name, known)
            options.tell(f"Note: no facts are known of the platform {name!r}; {meant}")
    return names


def _path(record: Record, out: Path) -> Path:
    return out / "records" / f"{record['id']}.json"


def _is_there(record: Record, out: Path) -> bool:
    """Tell whether the folder has a record; raises InputError for another one of its id."""
    path = _path(record, out)
    if not path.exists():
        return False
    old, new = _content(load(path)), _content(record)
    differing = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    if differing:
        raise InputError(
            f"{path} is of the same file and case and has another {', '.join(differing)}; delete "
            "it to have the new one, or choose another folder with --out."
        )
    return True


def _content(record: Record) -> dict[str, object]:
    """The content of a record; the driver's version and the file's name may change."""
    content = {key: value for key, value in record.items() if key not in {"digest", "provenance"}}
    return content | {"source": {**record["source"], "file": ""}}


def _words(record: Record) -> str:
    """'llama-bench, tiny, 2 nodes: 4 metrics', or 'failed'."""
    case = record["case"]
    parts = [case["benchmark"], case.get("model", ""), plural(case["nodes"], "node")]
    ended = plural(len(record["metrics"]), "metric") if record["metrics"] else record["outcome"]
    return f"{', '.join(filter(None, parts))}: {ended}"
