#!/usr/bin/env bash
# Compares the public API with its listings in tests/api/listings.
#
#   tests/api/check.sh                     fails, and shows what differs
#   SCOOP_API=write tests/api/check.sh     writes the listings again
#
# A line that is gone or changes breaks programs of users. Rustdoc writes JSON, from which `listing.rs` makes the lines.
set -euo pipefail
cd "$(dirname "$0")/../.."
declare -F plain_cargo >/dev/null || plain_cargo() { command cargo "$@"; }
unset RUSTC_WORKSPACE_WRAPPER

target=$(plain_cargo metadata --format-version 1 --no-deps --locked | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
listings=tests/api/listings
# With an example, so that Cargo selects the features of the dependencies as it does for the tests.
RUSTDOC=$PWD/tests/api/rustdoc.sh RUSTDOCFLAGS="-Z unstable-options --output-format json" \
    plain_cargo doc --workspace --no-deps --lib --example cleanup --locked --quiet

[ "${SCOOP_API:-}" = write ] && written=$listings || written=$target/api
mkdir -p "$written"
plain_cargo run --quiet --manifest-path tests/api/Cargo.toml --target-dir "$target" --locked -- "$target/doc" "$written"
diff -U1 "$listings" "$written" || {
    echo "The public API differs from its listing. If it should: SCOOP_API=write tests/api/check.sh, and a line in CHANGELOG.md." >&2
    exit 1
}
