"""Predicting a cluster: every way to run a model on it, from its file alone; see docs/predict.md.

The sums are those of nixwulf.perf. Nothing here reaches a node, and nothing is a record.
"""
