"""Tidy table → Plotly figure, a module a figure.

What draws is a pure function; below it a module has the record of the figure, which takes caption
and tables from an analysis (`mlem_core.figures.plots` has all of them).

Backgrounds are transparent and text has no colour of its own, so that a figure sits on a light page
as on a dark one. What a user wrote (names of features, cells) goes through `style.plain`, because
Plotly reads its texts as a small HTML.
"""
