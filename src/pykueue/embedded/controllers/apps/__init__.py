"""The controllers that keep pods running: ReplicaSet, Deployment, StatefulSet.

Facts: the Kubernetes documentation of the apps/v1 kinds; what `kubectl rollout` and `kubectl describe` show.
"""
