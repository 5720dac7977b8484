"""BackfillPolicies: whether they are in force."""
