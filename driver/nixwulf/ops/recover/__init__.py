"""Nodes that hang: their state, rebooting, shutting down, and recovering from soft to hard."""
