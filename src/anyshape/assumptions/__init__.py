"""What one capture assumed about sizes: decisions, predicates and requirements. Knows sympy, not torch."""
