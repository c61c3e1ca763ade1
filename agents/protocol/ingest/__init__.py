"""From raw records to blocks: filters, contribution bounds, snapshots, one machine for each source partition."""
