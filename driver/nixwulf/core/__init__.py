"""What all rooms use: errors, guarded reading of files, schemas, units, text."""
