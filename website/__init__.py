"""The documentation as a site: what MkDocs adds to docs/ while it builds. Nothing of ours imports it."""
