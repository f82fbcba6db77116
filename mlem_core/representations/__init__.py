"""Language models and what they make of the stimuli: representations, also from files."""
