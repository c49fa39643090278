"""Comparisons of two sets of records: equal conditions only, with intervals."""
