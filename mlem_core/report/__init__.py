"""Material for a paper: report, page, archive of everything, rerun, methods, LaTeX."""
