"""Work in the background: the runner, analyses, follow-ups, and the example."""
