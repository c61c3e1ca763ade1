"""What is read of a source, and where its schemas are."""
