"""What requests do: reading, writing, deleting, subresources, and objects that expire by themselves."""
