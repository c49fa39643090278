"""Explaining records: measured beside predicted, and why; see docs/predict.md."""
