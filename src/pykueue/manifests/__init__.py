"""Manifests read from files: what they mean without a cluster, and what an API server would refuse."""
