"""Do I know a module's dotted name, or a tokenizer? Layers, tasks and tails."""
