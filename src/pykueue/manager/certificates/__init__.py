"""The certificate that the manager serves with: made and renewed by the replicas themselves, or mounted.

Both kinds hand every new pair of certificate and key to the servers, which go on without a restart.
"""
