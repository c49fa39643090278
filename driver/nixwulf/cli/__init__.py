"""The commands of nixwulf, one file each; main.py finds them by name."""
