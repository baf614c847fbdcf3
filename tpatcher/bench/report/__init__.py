"""Do I know how results are shown? Tables, figures, and the page that holds them."""
