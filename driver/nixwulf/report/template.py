"""Templates of HTML pages: every value is escaped, and one that is not there is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def environment(folder: str) -> jinja2.Environment:
    """An environment of the templates in a folder of the package."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("nixwulf", folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
