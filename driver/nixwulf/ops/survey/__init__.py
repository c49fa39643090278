"""What machines say of themselves and of the wires between them, as a cluster file."""
