"""Fitting and judging the model's constants by published numbers."""
