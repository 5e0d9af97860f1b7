//! The caller of commands, an element of the context.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ContextError, ContextKey, Json, Stored};

/// The caller of a command, as its sender names it: a subject, roles, and further data.
///
/// It is an element of the [context](crate::ContextKey), so the commands of the whole hierarchy have the caller of the
/// first message. A context without it has the anonymous caller, which is the default. It is what the sender says: a
/// program that may launch messages can name any caller.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Caller;
///
/// let caller = Caller::new("alice").role("clerk").data("branch", 7)?;
/// assert_eq!(caller.subject(), Some("alice"));
/// assert!(caller.has_role("clerk") && !caller.has_role("manager"));
/// assert_eq!(caller.get::<u32>("branch")?, Some(7));
/// assert!(Caller::default().is_anonymous());
/// # Ok::<(), scoop::ContextError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    roles: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    data: BTreeMap<String, Value>,
}

impl ContextKey for Caller {
    const KEY: &'static str = "scoop.caller";
}

impl Caller {
    /// A caller with this subject: the name of a user or a service, as the sender has verified it.
    #[must_use]
    pub fn new(subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..Self::default() }
    }

    /// Adds a role.
    #[must_use]
    pub fn role(mut self, role: impl Into<String>) -> Self {
        self.roles.insert(role.into());
        self
    }

    /// Adds a value under a name.
    ///
    /// # Errors
    ///
    /// If the value cannot be written as JSON.
    pub fn data<T: Stored>(mut self, name: impl Into<String>, value: T) -> Result<Self, ContextError> {
        let name = name.into();
        let value = Json::to_value(&value)
            .map_err(|source| ContextError::Unwritable { key: format!("{}.{name}", Self::KEY), source })?;
        self.data.insert(name, value);
        Ok(self)
    }

    /// The subject; `None` for an anonymous caller.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Whether it has no subject.
    pub fn is_anonymous(&self) -> bool {
        self.subject.is_none()
    }

    /// The roles, in alphabetical order.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.roles.iter().map(String::as_str)
    }

    /// Whether it has this role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.contains(role)
    }

    /// The value under this name, if there is one.
    ///
    /// # Errors
    ///
    /// If the value has another type.
    pub fn get<T: Stored>(&self, name: &str) -> Result<Option<T>, ContextError> {
        self.data.get(name).map(T::read_stored).transpose().map_err(|source| ContextError::Mismatch {
            key: format!("{}.{name}", Self::KEY),
            expected: std::any::type_name::<T>(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;

    #[test]
    fn caller_in_a_context_replaces_the_former_one_as_a_whole() {
        let mut context = Context::default();
        context.set(Caller::new("alice").role("clerk")).unwrap();
        assert_eq!(context.raw(Caller::KEY), Some(r#"{"subject":"alice","roles":["clerk"]}"#));
        context.set(Caller::new("bob")).unwrap();
        let bob = context.get::<Caller>().unwrap().unwrap();
        assert_eq!((bob.subject(), bob.roles().count()), (Some("bob"), 0), "no role is inherited");
    }

    #[test]
    fn value_of_another_type_is_an_error_that_names_its_key() {
        let caller = Caller::new("alice").data("branch", "north".to_owned()).unwrap();
        let error = caller.get::<u32>("branch").unwrap_err().to_string();
        assert!(error.contains("`scoop.caller.branch`"), "{error}");
        assert_eq!(caller.get::<u32>("other").unwrap(), None);
    }
}
