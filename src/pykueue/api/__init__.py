"""What users write: typed objects, quantities, defaulting, validation, conversion, CRDs."""
