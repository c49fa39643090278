"""Models where they are needed: got from a hub, pushed, listed, verified, removed."""
