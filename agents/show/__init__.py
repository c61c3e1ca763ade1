"""What a configuration promises and what an engine shows, as text, pages and plots."""
