"""Choosing a way to run a model: ranked by prediction, the few that could be best measured.

`nixwulf plan`; see docs/plan.md. A sweep's plan of cases is nixwulf.plan, and is what measures here.
"""
