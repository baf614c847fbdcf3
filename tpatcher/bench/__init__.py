"""Do I know the paper's numbers, or a cluster? Its experiments, their jobs, and the report."""
