"""Readers of public traces: each gives the same records, one by one, in the order of the file."""
