"""Write docs/reference and docs/published.svg from what holds the facts, or check them.

Usage: .venv/bin/python tools/docs [--check | --words]

--check writes nothing, and exits with 1 when a page is not what it would write.
--words counts the words of the pages that are written by hand.

The page of NixOS options is left as it is where no nix can evaluate the flake.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import checks
import columns
import commands
import imports
import machines
import model
import options
import parameters
import ports
import published
import recipes
import runs
import schemas
import troubleshooting
import versions
import words

import campaign
import engines_ran

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "docs" / "reference"
_NOTE = "<!-- Made by 'make docs' from what the program reads; do not edit. -->\n"
_SOURCES = (
    checks,
    commands,
    schemas,
    parameters,
    columns,
    troubleshooting,
    ports,
    machines,
    versions,
    engines_ran,
    imports,
    recipes,
    model,
    campaign,
)
_INDEX = """# Reference

Made by `make docs` from commands, schemas, parameters, gates, hints and data; `make lint`
compares.

"""


def reference(*, with_options: bool) -> dict[Path, str]:
    """The text of each generated page, by its path."""
    made: dict[str, str] = {}
    for source in _SOURCES:
        made |= source.pages()
    kept = _FOLDER / "options.md"
    if with_options:
        try:
            made |= options.pages()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"options.md is left as it is: {error}", file=sys.stderr)
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in made.items()}
    if kept.exists():
        titles.setdefault(kept.name, "Options of the NixOS modules")
    made["README.md"] = _INDEX + "".join(f"* [{titles[name]}]({name})\n" for name in sorted(titles))
    return {_FOLDER / name: _NOTE + text for name, text in made.items()}


def _differs(path: Path, text: str) -> bool:
    same = published.same_words if path.suffix == ".svg" else str.__eq__
    return not same(path.read_text(), text)


def main() -> int:
    """Write the pages, or with --check compare them; the exit code."""
    if "--words" in sys.argv:
        print(words.report(_ROOT))
        return 0
    checking = "--check" in sys.argv
    made = reference(with_options=not checking) | runs.pages(_ROOT)
    made[_FOLDER.parent / published.NAME] = published.picture()
    stale = [path for path, text in made.items() if not path.exists() or _differs(path, text)]
    old = {path for path in _FOLDER.glob("*.md") if path not in made and path.name != "options.md"}
    for path in sorted({*stale, *old}):
        print(
            f"{path.relative_to(_ROOT)} {'is not what its sources say' if checking else 'written'}"
        )
    if checking:
        if stale or old:
            print("Run 'make docs', and commit what it writes.")
        return 1 if stale or old else 0
    _FOLDER.mkdir(exist_ok=True)
    for path in stale:
        path.write_text(made[path])
    for path in old:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
