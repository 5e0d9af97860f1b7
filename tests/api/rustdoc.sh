#!/bin/sh
# Rustdoc, with its JSON, which is not stable. With the variable for Cargo, too, some dependencies would be compiled again.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
