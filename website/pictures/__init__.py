"""Pictures of the pages, drawn of what the project's own code releases of the public data in examples/."""
