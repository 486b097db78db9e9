"""The programs of one compiled callable: how a call that none serves is captured, compiled or run eagerly."""
