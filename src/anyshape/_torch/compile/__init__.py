"""From a captured graph to code: for all sizes, for exact ones, for buckets, for what several have in common."""
