"""Reports of an experiment: tables, figures, and the page that shows them."""
