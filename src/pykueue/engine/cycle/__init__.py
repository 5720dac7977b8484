"""The scheduling cycle: nomination, order and processing of the heads of a tree."""
