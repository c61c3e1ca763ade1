"""From bytes to a document: one format, one file."""
