"""Recipes of others as sweeps: what they start, in the words of a sweep, and what has none there.

A recipe is a command line with a model, however it is written down. One module reads one form.
"""

from __future__ import annotations

from pathlib import Path

MOST_TEXT = 1 << 16  # characters of a recipe that is no YAML


def is_yaml(path: Path) -> bool:
    """By its suffix."""
    return path.suffix in (".yaml", ".yml")
