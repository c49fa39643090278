"""Choosing a way to run a model: ranked by prediction, the few that could be best measured.

`nixwulf plan`; see docs/predict.md. nixwulf.sweep.plan is something else: the cases of a sweep.
"""
