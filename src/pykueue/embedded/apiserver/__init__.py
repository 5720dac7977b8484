"""The API server: one generic resource path for every kind, built-in or custom."""
