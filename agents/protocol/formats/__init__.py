"""Other people's formats: from the bytes of one record to its fields. Pure functions; one format, one file.

What a record is read as depends on the record alone, and on the schema whose id it carries: never on when it is read,
on its neighbours, or on the newest version of anything.
"""
