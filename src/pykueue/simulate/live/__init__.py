"""Forecasts for a running manager: made by a process of their own, so that they never delay a decision."""
