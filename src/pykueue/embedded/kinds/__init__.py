"""What is particular to each built-in kind: defaults, validation, printed columns."""
