"""Programs beside the manager: the importer of running pods, the populator, and the priority booster.

Source: docs/reference/kueue-api.md 8.3 and 8.4.
"""
