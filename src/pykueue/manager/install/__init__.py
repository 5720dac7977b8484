"""What is installed on a cluster, as objects: the one source of `pykueue manifests` and of the Helm chart.

The shape is the reference's (docs/reference/kueue-api.md 10), so that what people wrote for its
installation finds
ours: names, labels, ports and roles. What an installation is called is in `manager.install_names`.
"""
