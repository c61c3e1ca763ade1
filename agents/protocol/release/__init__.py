"""From blocks to public records: merged steps, one candidate for each, published once."""
