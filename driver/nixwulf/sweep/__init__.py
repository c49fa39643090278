"""A sweep from its file to its records: plan, session, the phases of a run."""
