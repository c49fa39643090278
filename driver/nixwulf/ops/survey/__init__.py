"""A cluster file made of what machines report of themselves and of the wires between them."""
