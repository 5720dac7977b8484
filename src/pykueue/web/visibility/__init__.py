"""The visibility API: the pending workloads of a queue, in the order in which they will be admitted.

One API, served in two ways: by the embedded API server itself (`embedded`), and by an HTTPS server of the
manager behind a cluster's aggregation layer (`server`).
"""
