"""Namespaces that are deleted at once."""
