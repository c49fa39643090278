"""Deploying: facts of machines, the plan of what is wiped, installing, verifying, updating."""
