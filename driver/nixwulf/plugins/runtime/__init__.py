"""What engines, benchmarks and gates are written against: a case and its run."""
