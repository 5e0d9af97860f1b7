//! The engine of Scoop.

#[cfg(unix)]
pub mod embedded;
#[doc(hidden)]
pub mod private;
mod saga;
mod scope;

pub use saga::{Saga, Step, StepEnd};
pub use scope::Scope;
