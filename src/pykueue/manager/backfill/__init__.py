"""BackfillPolicies and Reservations: whether they are in force."""
