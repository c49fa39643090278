"""Serve: what a benchmark can run, kept running on one URL and watched by its progress."""
