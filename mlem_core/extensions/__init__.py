"""Extensions, a folder each: what the program can do beside its kernel (`mlem_core.extending`)."""
