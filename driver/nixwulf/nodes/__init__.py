"""What is reached over ssh: processes, facts, counters, links, containers, power; and the lab."""
