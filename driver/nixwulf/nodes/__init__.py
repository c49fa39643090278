"""What is reached over ssh: processes, facts, counters, links, containers."""
