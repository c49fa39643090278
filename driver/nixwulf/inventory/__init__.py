"""Cluster files, platforms, and fabrics: their kinds, ports, and what is attached to them."""
