"""Predicting a cluster: every strategy to run a model on it, from its file alone.

The sums are those of nixwulf.perf. Nothing here reaches a node, and nothing is a record.
"""
