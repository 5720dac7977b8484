"""The dashboard: web pages of queues and workloads, with the rights of the user who signed in.

One cache follows the cluster (`state`); every page is shown after reviews of the user's rights (`security`)
and made on the server (`pages`, `charts`, `templates`); changes are pushed (`stream`). See
docs/use/dashboard.md.
"""
