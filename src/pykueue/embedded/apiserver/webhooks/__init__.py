"""Admission: webhooks, in this process or over HTTPS, and what the server admits by itself."""
