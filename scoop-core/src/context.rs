//! The cooperation context, which travels with a run beside its message.
//!
//! A JSON object. Each element belongs to the program that knows its key. Unknown elements are passed on verbatim,
//! numbers included.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Stored;
use crate::stored::Json;

/// An element of the context, known by its type.
///
/// Derive it: `#[derive(ContextKey, Serialize, Deserialize)]`. The key is then the name of the type, or the one given
/// by `#[context(key = "..")]`.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{Context, ContextKey};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Tenant {
///     name: String,
/// }
///
/// impl ContextKey for Tenant {
///     const KEY: &'static str = "Tenant";
/// }
///
/// let mut context: Context = serde_json::from_str(r#"{"Another service's": 1.10}"#)?;
/// context.set(Tenant { name: "Northwind".into() })?;
/// assert_eq!(context.get::<Tenant>()?.unwrap().name, "Northwind");
/// assert_eq!(
///     serde_json::to_string(&context)?,
///     r#"{"Another service's":1.10,"Tenant":{"name":"Northwind"}}"#
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element of the context",
    label = "not an element of the context",
    note = "write `#[derive(ContextKey, Serialize, Deserialize)]` on `{Self}`"
)]
pub trait ContextKey: Stored + Send + Sync + 'static {
    /// The name under which it is stored.
    const KEY: &'static str;

    /// Merges with an older element of the key. By default the newer one replaces it.
    #[must_use]
    fn merge(older: Self, newer: Self) -> Self {
        let _ = older;
        newer
    }
}

/// The cooperation context. It travels from a run to the runs that it launches, from step to step, and through
/// rollbacks, but never from a child to its parent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Context {
    elements: Arc<BTreeMap<String, Box<RawValue>>>,
}

/// The error of an element of the context that cannot be read or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The value stored under the key has another type.
    #[error("the context has something under the key `{key}` that is no `{expected}`")]
    Mismatch {
        /// The key.
        key: String,
        /// The Rust type.
        expected: &'static str,
        /// The error of serde.
        source: serde_json::Error,
    },
    /// The value cannot be written as JSON.
    #[error("the value for the key `{key}` of the context cannot be written as JSON")]
    Unwritable {
        /// The key.
        key: String,
        /// The error of serde.
        source: serde_json::Error,
    },
    /// The value contains a NUL character, which PostgreSQL does not store.
    #[error(
        "the value for the key `{key}` of the context contains a NUL character (\\u0000), which PostgreSQL cannot store"
    )]
    Nul {
        /// The key.
        key: String,
    },
}

impl Context {
    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The element of this type, if there is one.
    ///
    /// # Errors
    ///
    /// If the value stored under its key has another type.
    pub fn get<K: ContextKey>(&self) -> Result<Option<K>, ContextError> {
        self.read(K::KEY)
    }

    /// Adds the element. If there is one already, [`ContextKey::merge`] combines them.
    ///
    /// # Errors
    ///
    /// If it cannot be stored, or if the value stored under its key has another type.
    pub fn set<K: ContextKey>(&mut self, element: K) -> Result<(), ContextError> {
        let merged = match self.get::<K>()? {
            Some(older) => K::merge(older, element),
            None => element,
        };
        self.write(K::KEY, &merged)
    }

    /// Removes the element. Returns whether there was one.
    pub fn remove(&mut self, key: &str) -> bool {
        self.elements.contains_key(key) && Arc::make_mut(&mut self.elements).remove(key).is_some()
    }

    /// The JSON text of an element, known or unknown.
    pub fn raw(&self, key: &str) -> Option<&str> {
        self.elements.get(key).map(|raw| raw.get())
    }

    /// All keys with the JSON text of their elements, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.elements.iter().map(|(key, raw)| (key.as_str(), raw.get()))
    }

    /// The number of bytes as JSON, except escapes in keys.
    pub fn bytes(&self) -> usize {
        let fields: usize = self.iter().map(|(key, text)| key.len() + text.len() + 3).sum();
        fields + self.elements.len().saturating_sub(1) + 2
    }

    /// This context with the elements of a newer one. For each key the newer element replaces the older one, without a
    /// merge.
    #[must_use]
    pub fn overlaid_by(mut self, newer: &Context) -> Self {
        if !newer.is_empty() {
            let newer = newer.elements.iter().map(|(key, raw)| (key.clone(), raw.clone()));
            Arc::make_mut(&mut self.elements).extend(newer);
        }
        self
    }

    pub(crate) fn read<T: Stored>(&self, key: &str) -> Result<Option<T>, ContextError> {
        let Some(raw) = self.elements.get(key) else {
            return Ok(None);
        };
        let value = serde_json::from_str(raw.get()).map(|Json(value)| value);
        let expected = std::any::type_name::<T>();
        value.map(Some).map_err(|source| ContextError::Mismatch { key: key.into(), expected, source })
    }

    pub(crate) fn write<T: Stored>(&mut self, key: &str, value: &T) -> Result<(), ContextError> {
        let raw = Json::to_raw_value(value)
            .map_err(|source| ContextError::Unwritable { key: key.into(), source })?;
        // In JSON a NUL can only occur as this escape. After an escaped backslash the same text is no escape.
        let text = raw.get().replace("\\\\", "");
        if text.contains("\\u0000") || key.contains('\0') {
            return Err(ContextError::Nul { key: key.replace('\0', "\\0") });
        }
        Arc::make_mut(&mut self.elements).insert(key.to_owned(), raw);
        Ok(())
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.elements, &other.elements) || self.iter().eq(other.iter())
    }
}
