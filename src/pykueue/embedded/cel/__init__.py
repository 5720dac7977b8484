"""What an API server checks with CEL: rules of custom kinds, conditions of webhooks."""
