"""The job's topics: made, checked, known by their ids, and missed."""
