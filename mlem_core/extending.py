"""Extensions: the record of what one contributes, and the list of those that are there.

Nothing else in the kernel or the shell knows an extension by its name. What a record names is
imported when it is used, so that the list is quick to read.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from typing import Any, Literal

from mlem_core.base.errors import InputError

# The place of an object, such as "mlem_core.extensions.decoding.stage:DECODING".
Reference = str
# A line an extension of this package; to delete one, take its line out and remove its folder, its
# tests and its page.
BUILT_IN = (
    "audit",
    "candidates",
    "cluster",
    "decoding",
    "distance_features",
    "erasure",
    "rank_estimators",
    "recordings",
    "repeated_measures",
    "replication",
    "similarities",
    "stimulus_maps",
    "systems",
    "text_features",
    "treebank",
    "value_coding",
    "web_page",
)
# Other packages name their record in this group of entry points.
ENTRY_POINTS = "mlem.extensions"


@dataclass(frozen=True)
class TableSource:
    """Tables that `analyze`, `rerun` and the zip write beside those of every analysis.

    Attributes
    ----------
    compute : a function of a `mlem_core.report.analysis_tables.TableInput` and a name, that gives
        `ComputedTables`
    option : of `analyze` (`--baselines`), and its entry in the manifest; its value is a list of
        names, and without one there are no tables. Empty: the tables are always there, without a
        name
    names : that the option may have
    help : of the option
    has_intervals : a function (analysis, store) that says whether the store has all that their
        intervals need; without it they need no more than other intervals
    """

    compute: Reference
    option: str = ""
    names: tuple[str, ...] = ()
    help: str = ""
    has_intervals: Reference = ""


@dataclass(frozen=True)
class ModelTable:
    """A kind of table that names the models and files of an analysis, and their properties.

    Attributes
    ----------
    option, metavar, help : of `analyze`
    label, about : of its upload in the form for a new analysis
    read : a function (path or content, name, names of the files that there are) that gives fields
        of `AnalysisSpec`, "models" and "representations" among them
    """

    option: str
    metavar: str
    help: str
    label: str
    about: str
    read: Reference


@dataclass(frozen=True)
class Command:
    """A command of the command line.

    Attributes
    ----------
    name, help : as `mlem --help` lists it
    examples : command lines without the program's name
    add_options : a function that adds the options to a parser of argparse
    run : a function of the options that gives the exit status, or None for 0
    description : further sentences in the command's own help
    writes_folder : whether its option --out is a folder, not a file
    runs_analysis : whether it runs an analysis, which a cluster may do
    """

    name: str
    help: str
    examples: tuple[str, ...]
    add_options: Reference
    run: Reference
    description: str = ""
    writes_folder: bool = False
    runs_analysis: bool = False


@dataclass(frozen=True)
class Screen:
    """A screen of the app.

    Attributes
    ----------
    url_path : its address (the first one's is `/`)
    title : in the navigation, on links and above the page
    symbol : name of a Material symbol
    listed : whether it stands in the navigation; else something on another screen leads to it
    least_models : that an analysis must have for the screen to stand in the navigation
    choices : names of the choices of its own that addresses hold
    page : its file is `pages/{page}_page.py`; by default its address
    """

    url_path: str
    title: str
    symbol: str
    listed: bool = True
    least_models: int = 0
    choices: tuple[str, ...] = ()
    page: str = ""

    @property
    def file(self) -> str:
        """Path of its file, from the folder of app.py."""
        # Its stem is not the url_path: a fresh server would otherwise run a page that is opened by
        # its address without app.py.
        return f"pages/{self.page or self.url_path}_page.py"

    @property
    def icon(self) -> str:
        """Its symbol, as a shortcode of Material symbols."""
        return f":material/{self.symbol}:"


@dataclass(frozen=True)
class Panel:
    """A part of a screen: a figure and the button that computes what it shows, or a function.

    Attributes
    ----------
    screen : where it stands: "details" (a drawer of two layers), "checks" (in that drawer), below
        a view of all layers ("heatmap", "map", "profiles", "scatter"), "maps" (above those of
        the two), "analyses" (below the list of them), "downloads", or "new"
    title : of the part
    icon : name of a Material symbol, where the part is folded
    show : a function that draws the part, in a module of `pages`; with it, all that follows is for
        nothing
    figure : its name
    tab : in the place of one figure those whose record names this tab
    part : what addresses call the part; by default the name of the figure
    stage : the background work that it needs
    button, help : that start this work
    subject : what this work is of: the "layers" that are shown, the "pair" that is compared, with
        the selected features, or the whole "analysis"
    about : sentence beside the button
    sentences : a function of the context of figures that gives lines above the figure
    tables : a function of the context that gives tables below the figure, each with its title and
        caption, by the name of its file
    remark : a function of the context that gives a sentence for below the bars of two layers
    applies : a function of the context that says whether the part is there; empty: it always is
    runs, runs_help : a function of the context that gives further analyses to start, each by the
        label of its button, and the help of these
    choices : names of the choices of its own that addresses hold
    """

    screen: str
    title: str
    icon: str = ""
    show: Reference = ""
    figure: str = ""
    tab: str = ""
    part: str = ""
    stage: str = ""
    button: str = ""
    help: str = ""
    subject: Literal["layers", "pair", "analysis"] = "layers"
    about: str = ""
    sentences: Reference = ""
    tables: Reference = ""
    remark: Reference = ""
    applies: Reference = ""
    runs: Reference = ""
    runs_help: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """Outcome of a check of the finding on two layers.

    Attributes
    ----------
    claim : that is checked
    verdict : whether it holds
    badge : the outcome in a few words
    reasons : why it fails
    """

    claim: str
    verdict: Literal["holds", "fails", "not tested"]
    badge: str
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Band:
    """A grey band behind the importances over the layers.

    Attributes
    ----------
    name : in the legend
    caption : what it is, in a sentence
    table : a data frame with columns model, layer, lower and upper; and group, where models of a
        group have the same
    """

    name: str
    caption: str
    table: Any


@dataclass(frozen=True)
class Extension:
    """What an extension adds to the program.

    Attributes
    ----------
    name : of its folder
    title : in a few words
    sentence : what it is for
    stages : work in the background, `mlem_core.tasks.followups.JobType` by name
    entries : modules that register entries when they are imported, by the kind of the registry
        ("figure", "estimator", "similarity", "distance", "result table", "canvas maps" ...)
    exports : public names of Python, which `mlem_core` has too
    tables : beside those of every analysis
    model_tables : that an analysis may take its models from
    commands : of the command line
    screens : of the app
    panels : parts of screens
    options : of an analysis: a frozen dataclass of `option` fields. By "models" it extends
        `mlem_core.analysis.model_source.ModelSource`; by "stimuli" it has no base, and formats and
        steps read its fields from a `mlem_core.analysis.source.StimulusSource`
    flags : a function of the context of figures that gives flags on layers and pairs of layers (a
        table as in `mlem_core.analysis.flags`), or None
    check : a function of the context that gives the `Check` of two layers
    bands : a function of the context that gives each `Band` behind the importances
    methods : a function (analysis, names) that gives sentences of the methods paragraph
    prepare : a function (analysis, store, selection) that keeps in the store what figures read; in
        the background, after an analysis and after its intervals
    example : a function (analysis, pair, store, report) that computes what comes with the packaged
        example, and gives the folders of these entries of the store
    """

    name: str
    title: str
    sentence: str
    stages: Mapping[str, Reference] = field(default_factory=dict)
    entries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exports: Mapping[str, Reference] = field(default_factory=dict)
    tables: tuple[TableSource, ...] = ()
    model_tables: tuple[ModelTable, ...] = ()
    commands: tuple[Command, ...] = ()
    screens: tuple[Screen, ...] = ()
    panels: tuple[Panel, ...] = ()
    options: Mapping[str, Reference] = field(default_factory=dict)
    flags: Reference = ""
    check: Reference = ""
    bands: Reference = ""
    methods: Reference = ""
    prepare: Reference = ""
    example: Reference = ""


def resolve(reference: Reference) -> Any:
    """Object at a place."""
    return pkgutil.resolve_name(reference)


@cache
def extensions() -> dict[str, Extension]:
    """Extensions by their names: those of this package, then those of installed packages.

    Raises InputError: two extensions with one name; an installed one whose record cannot be
    imported.
    """
    records: dict[str, Extension] = {}
    for name in BUILT_IN:
        records[name] = import_module(f"mlem_core.extensions.{name}").EXTENSION
    for entry_point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            record = entry_point.load()
        except Exception as error:
            raise InputError(
                f"the installed extension {entry_point.name} ({entry_point.value}) cannot be "
                f"imported: {error}; mend or uninstall its package."
            ) from error
        if record.name in records:
            raise InputError(
                f"two extensions are called {record.name}; uninstall the package of "
                f"{entry_point.value}."
            )
        records[record.name] = record
    return records


def entry_modules(kind: str) -> list[str]:
    """Modules of extensions that register entries of a kind, such as "figure"."""
    modules = list[str]()
    for extension in extensions().values():
        modules += extension.entries.get(kind, ())
    return modules


def references(field_name: str) -> dict[str, Reference]:
    """Places that extensions name in a field of their record, "exports" or "stages"."""
    places = dict[str, Reference]()
    for extension in extensions().values():
        places |= getattr(extension, field_name)
    return places


def contributions(field_name: str) -> list[Any]:
    """Entries that extensions have in a field of their record, such as "commands"."""
    entries = list[Any]()
    for extension in extensions().values():
        entries += getattr(extension, field_name)
    return entries


def with_extension_options(name: str, choices: type, kind: str) -> type:
    """Dataclass with the fields and methods of `choices`, and those of the options of extensions.

    Parameters
    ----------
    name : of the class, which the module of `choices` has
    kind : of the options, as in `Extension.options`
    """
    records = extensions().values()
    classes = [resolve(record.options[kind]) for record in records if kind in record.options]
    # What a dataclass would write of itself; each of `classes` is one.
    names = {key: getattr(choices, key) for key in ("__module__", "__doc__", "__repr__")}
    return dataclass(frozen=True, repr=False)(type(name, (*classes, choices), names))


def table_sources() -> dict[str, TableSource]:
    """Tables that extensions add where an option names them, by the option."""
    return {source.option: source for source in contributions("tables") if source.option}


def default_table_sources() -> list[TableSource]:
    """Tables that extensions add without an option."""
    return [source for source in contributions("tables") if not source.option]


def functions(field_name: str) -> list[Any]:
    """What extensions name in a field of their record, such as "methods"."""
    references = [getattr(extension, field_name) for extension in extensions().values()]
    return [resolve(reference) for reference in references if reference]


def panels(screen: str) -> list[Panel]:
    """Parts that extensions add to a screen."""
    return [panel for panel in contributions("panels") if panel.screen == screen]
