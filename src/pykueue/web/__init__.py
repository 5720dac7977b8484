"""Visibility API and dashboard."""
