//! Types that are stored under a name. Two with one name would be read as each other.

use std::any::TypeId;

use crate::wait::WaitStrategy;
use crate::{ContextKey, Signal};

/// A type of the linked program with a stored name: a derived context key or signal, or a strategy of launches.
pub struct NamedType {
    /// The kind of its name.
    pub kind: NameKind,
    /// The name.
    pub name: &'static str,
    /// The Rust type, and its name.
    pub rust_type: fn() -> (TypeId, &'static str),
}

/// The kind of a name. Names of different kinds are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameKind {
    /// The key of an element of the context.
    ContextKey,
    /// The name of a signal.
    Signal,
    /// The name of a strategy.
    WaitStrategy,
}

inventory::collect!(NamedType);

impl NamedType {
    /// The registration of a context key.
    pub const fn context_key<K: ContextKey>() -> Self {
        Self::new::<K>(NameKind::ContextKey, K::KEY)
    }

    /// The registration of a signal.
    pub const fn signal<S: Signal>() -> Self {
        Self::new::<S>(NameKind::Signal, S::NAME)
    }

    /// The registration of a strategy.
    pub const fn wait_strategy<S: WaitStrategy>() -> Self {
        Self::new::<S>(NameKind::WaitStrategy, S::NAME)
    }

    /// All registrations of this program, in no particular order.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        inventory::iter::<Self>()
    }

    const fn new<T: 'static>(kind: NameKind, name: &'static str) -> Self {
        Self { kind, name, rust_type: || (TypeId::of::<T>(), std::any::type_name::<T>()) }
    }
}
