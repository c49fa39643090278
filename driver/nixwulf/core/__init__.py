"""Tools for all rooms: errors, guarded reading of files, schemas, units, text."""
