"""What the screens share: state in the URL, the chosen analysis, figures, background work."""
