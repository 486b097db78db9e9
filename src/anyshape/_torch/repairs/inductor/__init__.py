"""Repairs of Inductor's passes, lowerings and index arithmetic."""
