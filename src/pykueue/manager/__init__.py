"""Controllers, webhooks and configuration: connects engine, jobs and kube."""
