"""Facts read off captured graphs: memory that is shared or mutated, subscripts, calls as values."""
