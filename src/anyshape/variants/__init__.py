"""When hot sizes and buckets get code of their own, and whether they keep it. Knows nothing of torch."""
