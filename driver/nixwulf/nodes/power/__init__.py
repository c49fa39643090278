"""Samples of power and clocks as nodes print them, and sums over their series."""
