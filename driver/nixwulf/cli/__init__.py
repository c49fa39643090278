"""The commands of nixwulf; main.py finds the module of each in data/commands.toml."""
