"""Engines, benchmarks, gates and meters, each found by its file; and what they use."""
