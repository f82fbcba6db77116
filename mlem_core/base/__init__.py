"""What every package may use: errors, types, text, threads."""
