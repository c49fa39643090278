"""An engine on nodes that have none: built once on a node of a kind, copied to its like."""
