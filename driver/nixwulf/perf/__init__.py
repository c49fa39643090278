"""The performance model: what a strategy to run a language model should give.

From facts and few constants; docs/model.md has every formula, its source and its limits. All of it
is pure: facts in, Prediction out; nothing here reaches a node.
"""
