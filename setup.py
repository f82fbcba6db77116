"""Packs the app below the package: app.py and pages/ stand at the top of the repository only."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# What the app reads, from the folder where it is: the checkout, or mlem_core/_app when installed.
APP = (
    *("app.py", "pages/**/*", "scripts/serve.py"),
    *(".streamlit/config.toml", "docs/**/*.md", "README.md", "CITATION.cff"),
)


class WithApp(build_py):
    """Also copies the app, but where the package is used from the checkout."""

    def _app(self) -> dict[str, Path]:
        files = (path for pattern in APP for path in sorted(ROOT.glob(pattern)))
        kept = (path for path in files if path.is_file() and "__pycache__" not in path.parts)
        below = Path(self.build_lib) / "mlem_core" / "_app"
        return {str(below / path.relative_to(ROOT)): path for path in kept}

    def run(self) -> None:
        super().run()
        for copy, path in {} if self.editable_mode else self._app().items():
            Path(copy).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs: list[str] = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, *self._app()]


setup(cmdclass={"build_py": WithApp})
