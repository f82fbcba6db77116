"""What the estimators recover and how steady they are, measured: `python -m validation`."""
