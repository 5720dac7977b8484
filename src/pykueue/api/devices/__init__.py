"""Devices of dynamic resource allocation: the types of resource.k8s.io/v1, and what a request selects.

Source: docs/reference/kueue-semantics.md 2.10 and the Kubernetes documentation.
"""
