"""CEL (Common Expression Language) with the functions and cost limits of Kubernetes: expressions and costs.

What rules of custom kinds and conditions of webhooks do with it is in `embedded.cel`.
"""
