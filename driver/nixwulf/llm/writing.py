"""Writing a model into the cache: the whole file or folder, or nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nixwulf.core.errors import NixwulfError


@contextmanager
def whole(path: Path, needed: int) -> Iterator[Path]:
    """A place to write to, which becomes PATH when the block ends well; needed: in bytes.

    Raises NixwulfError when it does not fit on the device or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
        if needed > free:
            raise NixwulfError(
                f"The model {path.name!r} needs {needed / 1e6:.0f} MB and {str(path.parent)!r} has "
                f"{free / 1e6:.0f} MB free; free some space or set XDG_CACHE_HOME to another disk."
            )
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
            place = Path(folder) / path.name
            yield place
            if not path.is_dir():  # another driver was faster: a folder cannot be replaced
                place.replace(path)
    except OSError as error:
        raise NixwulfError(
            f"Cannot write the model {str(path)!r}: {error.strerror}; free some space or set "
            "XDG_CACHE_HOME to another disk."
        ) from None
