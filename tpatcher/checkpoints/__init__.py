"""Do I write a model for somebody else? Baked, exported, consolidated, trained."""
