"""Schemas of built-in and custom kinds: defaults, pruning, validation, and how they are published."""
