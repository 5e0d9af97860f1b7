//! A thousand sagas, for B11, made by the build script if the feature `thousand` is on.

#[cfg(feature = "thousand")]
use scoop::prelude::*;

include!(concat!(env!("OUT_DIR"), "/thousand.rs"));

/// Whether this program has them.
pub(crate) const IS_HERE: bool = cfg!(feature = "thousand");

/// The builder with them beside what it has.
pub(crate) fn with_them(builder: scoop::Builder) -> scoop::Builder {
    chosen(builder)
}
