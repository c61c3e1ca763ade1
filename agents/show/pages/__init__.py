"""What every page shares: templates, plots, tables, and the report of a simulation."""
