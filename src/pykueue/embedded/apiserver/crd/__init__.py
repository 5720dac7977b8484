"""Serving custom resources: their endpoints, schemas, and conversion between versions."""
