"""Doctor: what is wrong with machines and their links, and what mends it."""
