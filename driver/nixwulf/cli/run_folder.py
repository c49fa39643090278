"""The folder of a run: new, or that of a run that goes on, and one driver's at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from nixwulf.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nixwulf.sweep.plan import Plan


@contextmanager
def own_folder(folder: Path, new: Plan | None) -> Iterator[None]:
    """The folder of a run, for this driver alone while the block lasts.

    Args:
        new: the plan of a run that begins, which is saved there; None of one that goes on.

    Raises:
        InputError: the folder of a run that begins is not new, or another driver has it.
    """
    from nixwulf.results.folder_lock import only_driver
    from nixwulf.sweep.plan import save_plan

    with only_driver(folder):
        if new is not None:
            check_new(folder)
            save_plan(new, folder / "plan.json")
        yield


def check_new(folder: Path) -> None:
    """Raises InputError for a folder that holds something; of a run, with how to go on."""
    from nixwulf.results.folder_lock import LOCK

    if (folder / "plan.json").exists():
        raise InputError(
            f"{str(folder)!r} holds a run; go on with it by 'nixwulf bench --resume {folder}', or "
            "choose another folder with --out."
        )
    if folder.exists() and (
        not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())
    ):
        raise InputError(f"{str(folder)!r} is not empty and not a run; choose another with --out.")
