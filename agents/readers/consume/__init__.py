"""What a consumer does with the public topics: follow adds and tombstones into a table, check it, write it as a file.

Nothing here sees a private topic: what it needs is what readers are allowed to read.
"""
