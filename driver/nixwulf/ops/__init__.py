"""Nodes deployed, updated, brought back, checked."""
