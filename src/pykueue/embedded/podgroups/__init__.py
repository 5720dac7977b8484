"""The kinds by which pods ask to be placed as a group, installed like anybody's custom resources."""
