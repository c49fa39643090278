"""Cluster files, platforms, and the ports of their fabrics."""
