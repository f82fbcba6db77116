"""What else explains the similarity of two layers."""

from mlem_core.extending import Command, Extension, Panel

_HERE = "mlem_core.extensions.candidates"

EXTENSION = Extension(
    name="candidates",
    title="What else explains",
    sentence="Which columns beyond the features explain more of the similarity of two layers, or "
    "of one layer.",
    stages={"what-else": f"{_HERE}.stage:JOB"},
    entries={"figure": (f"{_HERE}.figures",)},
    exports={"explain_rest": f"{_HERE}.candidate_search:explain_rest"},
    example=f"{_HERE}.stage:search_for_example",
    commands=(
        Command(
            name="what-else",
            help="find columns that explain more of two layers' similarity than the features",
            description="Candidates follow from the words and sentences, from the tokens and "
            "predictions of the models, or are other columns of the stimuli and distances in "
            "other layers. Their gains are beyond those with their labels permuted.",
            examples=("what-else minilm:3 smollm2:20 --stimuli probing --out candidates.csv",),
            add_options=f"{_HERE}.command:add_options",
            run=f"{_HERE}.command:search_candidates",
            runs_analysis=True,
        ),
    ),
    panels=(
        Panel(
            screen="details",
            title="What else",
            icon="search",
            figure="what_else",
            part="rest",
            about="Words around it, length, frequency, predictions of a model, other columns of "
            "your table: each is tried as a further feature, and compared with its labels "
            "permuted.",
            sentences=f"{_HERE}.stage:sentences",
            remark=f"{_HERE}.stage:remark",
            stage="what-else",
            subject="pair",
            button="Find what else explains it",
            help="Permutes the labels of each candidate, in the background; some minutes.",
            runs=f"{_HERE}.stage:runs_with_candidates",
            runs_help="Runs this analysis again with it among the features; models are not run "
            "again.",
        ),
    ),
)
