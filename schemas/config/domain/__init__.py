"""`[streams.domain]`: the public domain, by declaration and never from data. One model and one file for each `kind`."""
