"""Nodes deployed, updated, brought back, checked; models brought to them."""
