"""Budgets: resource-hours that workloads may use in a window, as a capacity beside quota."""
