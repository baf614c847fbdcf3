"""The benchmark: the paper's numbers, its tables and figures, and the report."""
