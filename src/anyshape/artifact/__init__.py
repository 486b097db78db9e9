"""Files that hold compiled programs: the format, who may be trusted, how they are written and looked at.

Nothing here knows torch: a file is read, checked and inspected without it.
"""
