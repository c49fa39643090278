"""Recipes of others as sweeps: what they start, in the words of a sweep, and what has none there.

A recipe is a command line with a model, however it is written down. One module reads one form.
"""
