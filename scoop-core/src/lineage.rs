//! A run's place among its ancestors.

use std::fmt;

use uuid::Uuid;

/// The ids from the root emission down to one run: each handler that starts adds one.
///
/// The first id names the whole hierarchy, the last the run itself; a prefix is an ancestor.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Lineage;
/// use uuid::Uuid;
///
/// let root = Lineage::root(Uuid::from_u128(1));
/// let run = root.child(Uuid::from_u128(2));
/// assert_eq!(run.parent(), Some(root));
/// assert_eq!(run.to_string(), "00000000-0000-0000-0000-000000000001.00000000-0000-0000-0000-000000000002");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage(Vec<Uuid>);

impl Lineage {
    /// The lineage of an emission from outside.
    pub fn root(id: Uuid) -> Self {
        Self(vec![id])
    }

    /// The stored lineage; `None` if it has no id.
    pub fn from_ids(ids: Vec<Uuid>) -> Option<Self> {
        if ids.is_empty() { None } else { Some(Self(ids)) }
    }

    /// The lineage of a run that handles a message of this run.
    #[must_use]
    pub fn child(&self, id: Uuid) -> Self {
        let mut ids = self.0.clone();
        ids.push(id);
        Self(ids)
    }

    /// The lineage one level up, unless this is a root.
    pub fn parent(&self) -> Option<Self> {
        Self::from_ids(self.0[..self.0.len() - 1].to_vec())
    }

    /// The first id: it names the hierarchy.
    pub fn root_id(&self) -> Uuid {
        self.0[0]
    }

    /// The last id: it names the run.
    pub fn id(&self) -> Uuid {
        self.0[self.0.len() - 1]
    }

    /// All ids, the root's first.
    pub fn ids(&self) -> &[Uuid] {
        &self.0
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, id) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{id}")?;
        }
        Ok(())
    }
}
