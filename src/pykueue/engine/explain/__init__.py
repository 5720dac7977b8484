"""Explanations of decisions as data and as text, and read-only queries."""
