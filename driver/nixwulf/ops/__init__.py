"""Nodes surveyed, deployed, updated, checked, brought back; engines and models brought to them."""
