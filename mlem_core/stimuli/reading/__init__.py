"""Any file of stimuli: bytes to a table of cells, or to the sentences of a treebank."""
