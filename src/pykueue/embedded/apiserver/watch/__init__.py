"""Watches: what they show, and how events reach slow and fast clients."""
