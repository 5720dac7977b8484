"""PreemptionPolicies: whether they are in force, and the ledger of preemptions in their status."""
