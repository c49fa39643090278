"""Choosing a strategy to run a model: ranked by prediction, the few that could be best measured.

The command is `nixwulf tune`; see docs/predict.md.
"""
