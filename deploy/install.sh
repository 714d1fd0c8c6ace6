#!/bin/sh
# Puts the bridge with all it needs into one folder: deploy/Dockerfile runs it, and with it tests/image/rootfs.py.
#
#   install.sh PYTHON SOURCE FOLDER
#
# FOLDER becomes a virtual environment: absolute paths in it hold, so it must be made where it is to be used.
set -eu
python=$1 source=$2 folder=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# What is on somebody's path must not count as installed here.
unset PYTHONPATH

"$python" -m venv "$folder"
pip="$folder/bin/python -m pip --disable-pip-version-check --quiet"
# From a copy: building writes into the source.
mkdir "$work/source"
for name in pyproject.toml README.md LICENSE schemas bridge spark; do
    cp -R "$source/$name" "$work/source/$name"
done
$pip wheel --no-deps --wheel-dir "$work" "$work/source"
$pip install --no-compile -c "$source/constraints.txt" "$work"/*.whl

packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# What runs nothing here: Spark's examples and R, tests, and the installer.
rm -rf "$packages"/pyspark/examples "$packages"/pyspark/data "$packages"/pyspark/R \
    "$packages"/pyspark/tests "$packages"/pyspark/*/tests "$packages"/pyarrow/tests "$packages"/pyarrow/include
# Copies of pyspark and py4j that Spark puts before them on its workers' path: nothing in an archive is compiled ahead, which
# costs each new Python process half a second.
rm -f "$packages"/pyspark/python/lib/*.zip
$pip uninstall --yes setuptools pip
# The root file system is read-only later: compile now, and let no clock decide whether that is current.
"$folder/bin/python" -m compileall -q --invalidation-mode unchecked-hash "$packages"
