"""The kinds by which pods ask to be placed as a group, installed as custom resources."""
