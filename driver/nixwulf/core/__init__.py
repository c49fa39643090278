"""What all rooms stand on: errors, guarded reading of files, schemas, units, text."""
