"""The commands of nixwulf, one file each; cli.py finds them by name."""
