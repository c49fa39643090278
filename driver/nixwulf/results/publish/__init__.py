"""Records made fit for others: what is private is taken out, and listed."""
