"""Image, measure and explain small desk-side clusters."""

__version__ = "0.1.0"
