"""A result as one page that needs no server."""

from mlem_core.extending import Command, Extension, Panel

_HERE = "mlem_core.extensions.web_page"

EXTENSION = Extension(
    name="web_page",
    title="One page",
    sentence="A result as one HTML page that needs no server.",
    stages={"page": f"{_HERE}.stage:JOB"},
    commands=(
        Command(
            name="export",
            help="write a result as one HTML page, or as a zip of everything",
            description="The page explains every two layers, with the maps of the stimuli, the "
            "profiles, the tables and the methods. Nothing in it is fetched from elsewhere. The "
            "zip has all tables and figures, the methods, the stimuli and manifest.json for "
            "rerun.",
            examples=("export results --html explorer.html", "export results --zip all.zip"),
            add_options=f"{_HERE}.command:add_options",
            run=f"{_HERE}.command:export",
        ),
    ),
    panels=(
        Panel(screen="downloads", title="One page", show="pages.parts.page_download:offer_page"),
    ),
)
