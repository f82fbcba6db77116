"""Material for a paper: capsule, verification, methods paragraph, references, LaTeX."""
