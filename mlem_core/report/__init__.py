"""What goes into a paper: capsule, verification, methods paragraph, references, LaTeX."""
