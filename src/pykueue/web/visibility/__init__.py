"""The visibility API: which workloads wait in a queue, in the order in which they are taken.

One API, answered in two ways: by the embedded API server itself (`extension`), and by an HTTPS server of the
manager behind a cluster's aggregation layer (`server`).
"""
