#!/usr/bin/env bash
# Searches for deliberate bugs with the simulation, in a copy of the workspace to which `bugs.patch` adds them.
#
#   tests/sim/bugs.sh                      each bug has to be found
#   tests/sim/bugs.sh --bugs CountTwice    the bug of this name, or those of one simulation: large, changing, awaiting, limited, ..
#   tests/sim/bugs.sh --seed 41            other arguments of the simulation
#   tests/sim/bugs.sh --update             writes the patch again, after changes in the copy
#
# The copy is `bugs` in the target folder, with a repository of its own, where the tag `base` is the workspace without the patch. Git
# writes only files that differ, so Cargo compiles only what has changed. The dependencies are those of the workspace.
set -euo pipefail
cd "$(dirname "$0")/../.."
declare -F plain_cargo >/dev/null || plain_cargo() { command cargo "$@"; }
# The bugs need no lints.
unset RUSTC_WORKSPACE_WRAPPER

CARGO_TARGET_DIR=$(plain_cargo metadata --format-version 1 --no-deps --locked | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
export CARGO_TARGET_DIR
copy=$CARGO_TARGET_DIR/bugs
patch=$PWD/tests/sim/bugs.patch

in_copy() { git -C "$copy" "$@"; }
# The files of the workspace, in an index of the repository of the copy.
next() { GIT_INDEX_FILE=$copy/.git/next git --git-dir="$copy/.git" --work-tree=. "$@"; }

if [ "${1:-}" = --update ]; then
    in_copy add -A
    in_copy diff-index --cached -p -U1 --full-index base -- . ':!*.rej' ':!tests/sim/bugs.patch' >"$copy/.git/patch"
    cp "$copy/.git/patch" "$patch"
    exit
fi

git init -q "$copy"
# With the former versions of files, from which the patch was made: a merge needs them.
git rev-parse --path-format=absolute --git-path objects >"$copy/.git/objects/info/alternates"
if [ -n "$(in_copy ls-files --modified --deleted --others --exclude-standard)" ]; then
    echo "$copy has changes. Add them to the patch by tests/sim/bugs.sh --update, or remove the folder." >&2
    exit 1
fi

rm -f "$copy/.git/next"
git ls-files -z | next update-index --add --remove -z --stdin
base=$(next write-tree)
next update-ref refs/tags/base "$base"
if ! next apply --cached "$patch"; then
    in_copy read-tree --reset -u "$base"
    # Three versions are merged if the repository has the former one.
    in_copy apply --3way "$patch" || in_copy ls-files --unmerged | grep -q . || in_copy apply --reject "$patch" || true
    cat >&2 <<EOF

tests/sim/bugs.patch does not apply. $copy has the bugs that could be merged. Put in the others, which are between
conflict markers or in files *.rej, and run tests/sim/bugs.sh --update.
EOF
    exit 1
fi
in_copy read-tree --reset -u "$(next write-tree)"

[ $# -gt 0 ] || set -- --bugs
cd "$copy"
plain_cargo test --locked --test sim -- "$@"
