"""Figure 3 of paper 1: the importance of each feature over the layers of each model."""

from __future__ import annotations

from functools import partial

from pages import audited
from pages import shared as screen

TRIANGLES = (
    "Triangles: layers of which a conclusion changes in the audit, point at one for the reason. "
)


def body() -> None:
    view = screen.view(
        "Profiles",
        "Which features shape each layer: how much of the held-out ρ is lost when a feature is "
        "permuted.",
    )
    if view is None:
        return
    from mlem_core import figures

    results = view.results()
    if results is None:
        return
    drawn = figures.with_interactions(results.importance, view.all_features)
    found = audited.reasons(view)
    marked = {
        layer: "; ".join(filter(None, (found["profiles"].get(layer), found["scores"].get(layer))))
        for layer in view.layers
        if found and (layer in found["profiles"] or layer in found["scores"])
    }
    draw = partial(figures.profiles, results.importance, results.scores, drawn, marks=marked)
    screen.show_figure(
        draw(),
        results.importance,
        "profiles",
        "Feature importance (FI): the drop of Spearman ρ on pairs of held-out stimuli when the "
        "feature is permuted, computed as an expectation; mean over folds, bands are one standard "
        "deviation over folds. Dashed: held-out ρ of the metric model. Dotted: the ceiling, "
        f"which no function of these features can pass. {TRIANGLES if marked else ''}"
        f"{view.caption(results)}",
        narrow=partial(draw, across=2),
        table=partial(screen.profile_table, results),
    )
    screen.show_table(
        results.scores,
        "scores",
        "Held-out scores of each layer and fold",
        "ρ, ρ with ties at random (rho_a), the ceiling, and the ridge penalty α that the inner "
        "cross-validation chose.",
    )


screen.page(body)
