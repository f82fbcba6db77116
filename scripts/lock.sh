#!/bin/sh
# Write constraints.txt from what .venv holds. Without local labels (2.13.0+cpu is 2.13.0), so that
# the same pins hold for CPU and CUDA builds; CUDA's own libraries are pinned by torch itself.
set -eu
cd "$(dirname "$0")/.."

{
    echo "# Every package of a complete set-up, pinned; written by \`make lock\`."
    .venv/bin/python -m pip freeze --exclude-editable |
        grep '==' | grep -viE '^(nvidia-|cuda-|triton==|setuptools==|wheel==|pip==)' |
        sed 's/+[a-z0-9.]*$//'
    grep -E '^(setuptools|wheel)==' requirements.txt
} >constraints.txt.part
mv constraints.txt.part constraints.txt
