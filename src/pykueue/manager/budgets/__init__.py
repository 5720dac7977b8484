"""Budgets: the ledgers of what was used, windows, thresholds and what happens at them."""
