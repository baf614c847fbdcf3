"""Do I know which patches a model carries? Models, and what they do at each answer position."""
