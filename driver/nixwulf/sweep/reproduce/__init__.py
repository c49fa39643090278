"""Repeating published records and earlier runs: their sweep, the verdict, and what slowed it."""
