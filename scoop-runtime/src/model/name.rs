//! Ids by which programs name runs and hierarchies.

use std::fmt;
use std::str::FromStr;

use scoop_core::Escaped;
use serde::{Deserialize, Serialize};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};
use uuid::Uuid;

/// Declares an id: a uuid with a type of its own for the object that it names.
macro_rules! id {
    ($(#[$doc:meta])* $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $id(Uuid);

        impl $id {
            /// The id as it is stored and logged.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $id {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl From<$id> for Uuid {
            fn from(id: $id) -> Self {
                id.0
            }
        }

        impl PartialEq<Uuid> for $id {
            fn eq(&self, id: &Uuid) -> bool {
                self.0 == *id
            }
        }

        impl PartialEq<$id> for Uuid {
            fn eq(&self, id: &$id) -> bool {
                *self == id.0
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $id {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }

        // Programs may store the id in their own columns.
        impl Type<Postgres> for $id {
            fn type_info() -> PgTypeInfo {
                Uuid::type_info()
            }
        }

        impl PgHasArrayType for $id {
            fn array_type_info() -> PgTypeInfo {
                Uuid::array_type_info()
            }
        }

        impl Encode<'_, Postgres> for $id {
            fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
                self.0.encode_by_ref(buffer)
            }
        }

        impl Decode<'_, Postgres> for $id {
            fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
                Uuid::decode(value).map(Self)
            }
        }
    };
}

id! {
    /// The id of a run: one execution of a saga for one message.
    ///
    /// [`RunInfo::id`](crate::RunInfo::id), `StuckRun::id` and
    /// `FailedRollback::id` give it; `operate().failures().retry`,
    /// [`Scoop::cancel`](crate::Scoop::cancel) and other requests take it. A [`Uuid`] from a log converts into it, as
    /// does its text; a request fails with [`RuntimeError::wrong_id`](crate::RuntimeError::wrong_id) if it names
    /// something else. It can be bound to a query as a `uuid`.
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// use scoop::RunId;
    ///
    /// let run: RunId = "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a".parse()?;
    /// assert_eq!(run.to_string(), "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a");
    /// assert_eq!(RunId::from(run.uuid()), run);
    /// # Ok::<_, uuid::Error>(())
    /// ```
    RunId
}

id! {
    /// The id of a hierarchy: a message launched from outside, its runs, and their descendants.
    ///
    /// [`Handle::id`](crate::Handle::id) gives it; [`Scoop::find`](crate::Scoop::find),
    /// [`Scoop::cancel`](crate::Scoop::cancel) and others take it. A [`Uuid`] from a log converts into it, as does its
    /// text. It can be bound to a query as a `uuid`.
    ///
    /// ```
    /// # extern crate scoop_runtime as scoop;
    /// use scoop::HierarchyId;
    ///
    /// let order: HierarchyId = "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a".parse()?;
    /// assert_eq!(order.to_string(), "0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a");
    /// # Ok::<_, uuid::Error>(())
    /// ```
    HierarchyId
}

/// The object that an id names, according to the database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdObject {
    /// A hierarchy.
    Hierarchy {
        /// The runs of its first message, each with its saga; a few of them if there are many.
        runs: Vec<(RunId, String)>,
    },
    /// A run.
    Run {
        /// The hierarchy that it belongs to.
        hierarchy: HierarchyId,
        /// The saga.
        handler: String,
    },
    /// A message.
    Message {
        /// The hierarchy that it belongs to.
        hierarchy: HierarchyId,
        /// The runs that handle it, each with its saga; a few of them if there are many.
        runs: Vec<(RunId, String)>,
    },
}

impl IdObject {
    /// The hierarchy of the object of this id, and its runs, as far as they are named.
    #[doc(hidden)]
    pub fn runs_of(&self, id: Uuid) -> (HierarchyId, Vec<RunId>) {
        let ids = |runs: &[(RunId, String)]| runs.iter().map(|(run, _)| *run).collect();
        match self {
            Self::Hierarchy { runs } => (id.into(), ids(runs)),
            Self::Run { hierarchy, .. } => (*hierarchy, vec![id.into()]),
            Self::Message { hierarchy, runs } => (*hierarchy, ids(runs)),
        }
    }
}

/// The maximum number of runs in the description of an object.
pub(crate) const RUNS_NAMED: u32 = 5;

/// The kind of id that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdKind {
    /// The id of a run.
    Run,
    /// The id of a hierarchy.
    Hierarchy,
    /// The id of a run or of a hierarchy.
    RunOrHierarchy,
}

/// Writes a list of runs as a part of a sentence.
fn write_runs(f: &mut fmt::Formatter<'_>, runs: &[(RunId, String)]) -> fmt::Result {
    for (nth, (run, handler)) in runs.iter().enumerate() {
        let before = match nth {
            0 => "",
            nth if nth + 1 == runs.len() => " and ",
            _ => ", ",
        };
        write!(f, "{before}run {run} of `{}`", Escaped(handler))?;
    }
    Ok(())
}

impl fmt::Display for IdObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hierarchy { runs } if runs.is_empty() => f.write_str("a hierarchy that no run handles"),
            Self::Hierarchy { runs } => {
                f.write_str("the hierarchy that begins with ")?;
                write_runs(f, runs)
            }
            Self::Run { hierarchy, handler } => {
                write!(f, "a run of `{}` in hierarchy {hierarchy}", Escaped(handler))
            }
            Self::Message { hierarchy, runs } if runs.is_empty() => {
                write!(f, "a message of hierarchy {hierarchy} that no run handles")
            }
            Self::Message { hierarchy, runs } => {
                write!(f, "the message of hierarchy {hierarchy} that ")?;
                write_runs(f, runs)?;
                f.write_str(if runs.len() == 1 { " handles" } else { " handle" })
            }
        }
    }
}

impl IdKind {
    /// Names the id to pass instead of that of `named`.
    pub(crate) fn hint(self, named: &IdObject) -> String {
        let (hierarchy, runs) = match named {
            IdObject::Hierarchy { runs } => (None, &runs[..]),
            IdObject::Run { hierarchy, .. } => (Some(hierarchy), &[][..]),
            IdObject::Message { hierarchy, runs } => (Some(hierarchy), &runs[..]),
        };
        let run = runs.first().map(|(run, _)| run);
        match (self, run, hierarchy) {
            (Self::Run, Some(run), _) if runs.len() == 1 => format!("use {run}"),
            (Self::Run, Some(_), _) => "use the id of a run".into(),
            (Self::Run, None, _) => "it has no run".into(),
            (Self::RunOrHierarchy, Some(run), Some(hierarchy)) if runs.len() == 1 => {
                format!("use {run} for the run, or {hierarchy} for all of the hierarchy")
            }
            (Self::Hierarchy | Self::RunOrHierarchy, _, Some(hierarchy)) => format!("use {hierarchy}"),
            (Self::Hierarchy | Self::RunOrHierarchy, _, None) => "use its id as such".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(runs: &[u128]) -> IdObject {
        let runs = runs.iter().map(|id| (RunId::from(Uuid::from_u128(*id)), "check\nout".to_owned()));
        IdObject::Message { hierarchy: Uuid::from_u128(1).into(), runs: runs.collect() }
    }

    #[test]
    fn id_is_written_as_its_uuid_everywhere() {
        let id = RunId::from(Uuid::from_u128(7));
        assert_eq!(serde_json::to_string(&id).expect("JSON"), format!("\"{}\"", id.uuid()));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("7".parse::<RunId>().is_err());
    }

    #[test]
    fn id_of_a_message_is_described_with_its_runs() {
        let (one, two, three) = (named(&[2]), named(&[2, 3]), named(&[2, 3, 4]));
        let nil = "00000000-0000-0000-0000-00000000000";
        assert_eq!(
            one.to_string(),
            format!(r"the message of hierarchy {nil}1 that run {nil}2 of `check\nout` handles")
        );
        assert!(two.to_string().ends_with(&format!(r"`check\nout` and run {nil}3 of `check\nout` handle")));
        assert!(three.to_string().contains(&format!(r"`, run {nil}3 of `check\nout` and run {nil}4")));
        assert_eq!(named(&[]).to_string(), format!("a message of hierarchy {nil}1 that no run handles"));
        assert_eq!(IdKind::Run.hint(&one), format!("use {nil}2"));
        assert_eq!(IdKind::Run.hint(&two), "use the id of a run");
        let both = format!("use {nil}2 for the run, or {nil}1 for all of the hierarchy");
        assert_eq!(IdKind::RunOrHierarchy.hint(&one), both);
        assert_eq!(IdKind::RunOrHierarchy.hint(&two), format!("use {nil}1"));
    }
}
