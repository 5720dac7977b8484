"""Objects of the API as values: errors and their causes, metadata, selectors, JSONPath, patches, protobuf."""
