//! A saga as plain data.

use std::borrow::Cow;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::TOPIC_BYTES_MAX;

/// The maximum length of a saga name in characters. It is stored in 255 characters together with the worker that ran
/// it.
pub const NAME_CHARS_MAX: usize = 180;

/// The maximum length of a step name in characters. A rollback stores it with a prefix and a suffix in 255 characters.
pub const STEP_NAME_CHARS_MAX: usize = 180;

/// The name space of fingerprints.
const FINGERPRINTS: Uuid = Uuid::from_u128(0x0b6e_3c41_95d7_4d0f_8a52_7b1b_5a3c_9e21);

/// A saga: its name, the topic it handles and its ordered steps.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::{Definition, StepDefinition};
///
/// const STEPS: &[StepDefinition] = &[
///     StepDefinition::new("reserve").compensated(),
///     StepDefinition::new("ship"),
/// ];
/// const CHECKOUT: Definition = Definition::new("checkout", "orders.placed", STEPS);
///
/// assert_eq!(CHECKOUT.step_index("ship"), Some(1));
/// assert!(CHECKOUT.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name, which is stored with every event of the saga.
    pub saga: Cow<'static, str>,
    /// The topic of its subscription; of several, one of them.
    pub topic: Cow<'static, str>,
    /// The steps in their order; never empty.
    pub steps: Cow<'static, [StepDefinition]>,
}

/// One step of a saga for the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepDefinition {
    /// The persisted name.
    pub name: Cow<'static, str>,
    /// Earlier persisted names, which active and finished runs may still have.
    pub was: &'static [&'static str],
    /// The steps whose values are parameters of its code, except those taken as an `Option`.
    pub needs: &'static [&'static str],
    /// Whether it has a compensation.
    pub compensated: bool,
    /// Whether it has a child failure handler.
    pub handles_child_failure: bool,
    /// Its kind.
    pub kind: StepKind,
    /// How often its code runs.
    pub delivery: Delivery,
    /// The name of the signal for which it waits.
    pub awaits: Option<&'static str>,
}

const WAIT_SUFFIXES: [&str; 2] = [AWAITS_SIGNAL, " (waiting for scheduled time)"];

const AWAITS_SIGNAL: &str = " (waiting for signal)";

/// Whether a stored step is the wait for a signal before a step of the user.
///
/// ```
/// # use scoop_core::is_signal_wait;
///
/// assert!(is_signal_wait("ship (waiting for signal)"));
/// assert!(!is_signal_wait("ship (waiting for scheduled time)"));
/// ```
pub fn is_signal_wait(stored: &str) -> bool {
    stored.ends_with(AWAITS_SIGNAL)
}

/// The step of the user for which a stored step waits; otherwise the name itself.
///
/// ```
/// # use scoop_core::visible_step;
///
/// assert_eq!(visible_step("ship (waiting for signal)"), "ship");
/// assert_eq!(visible_step("ship"), "ship");
/// ```
pub fn visible_step(stored: &str) -> &str {
    WAIT_SUFFIXES.iter().find_map(|suffix| stored.strip_suffix(suffix)).unwrap_or(stored)
}

/// How often the code of a step runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Until its end is recorded: again after a lost worker or answer.
    #[default]
    AtLeastOnce,
    /// Once. After a lost worker or answer the step fails as [`Interrupted`](crate::Interrupted).
    AtMostOnce,
}

/// A stored step of a definition: its names, its kind, and the presence of a compensation and a child failure
/// handler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStep {
    /// The persisted name.
    pub name: String,
    /// Earlier persisted names, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<String>,
    /// Its kind.
    #[serde(default, skip_serializing_if = "StepKind::is_code")]
    pub kind: StepKind,
    /// Whether it has a compensation. Assumed if the record does not contain it.
    #[serde(default = "unknown")]
    pub compensated: bool,
    /// Whether it has a child failure handler. Assumed if the record does not contain it.
    #[serde(default = "unknown")]
    pub handles_child_failure: bool,
    /// The name of the signal for which it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
}

/// The default for missing facts: unknown code is not skipped.
fn unknown() -> bool {
    true
}

/// The kind of a step. One step of the user may be several steps of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// Runs user code.
    #[default]
    Code,
    /// Waits for the time at which the next step is due.
    Wait,
    /// Cleans up after the previous step, once that and its children are done.
    Finally,
    /// Decides a command about an entity. The decision and its settlement are one transaction.
    Decide,
}

impl RecordedStep {
    /// Whether the step is stored under this name or an earlier one.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.was.iter().any(|was| was == name)
    }
}

impl StepKind {
    fn is_code(&self) -> bool {
        *self == Self::Code
    }

    /// Whether users see it as a step: it does not only wait or clean up.
    pub fn is_visible(self) -> bool {
        matches!(self, Self::Code | Self::Decide)
    }
}

impl StepDefinition {
    /// A step with neither compensation nor child failure handler.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            was: &[],
            needs: &[],
            compensated: false,
            handles_child_failure: false,
            kind: StepKind::Code,
            delivery: Delivery::AtLeastOnce,
            awaits: None,
        }
    }

    /// Sets the name of the signal for which it waits.
    #[must_use]
    pub const fn awaiting(mut self, signal: &'static str) -> Self {
        self.awaits = Some(signal);
        self
    }

    /// Has its code run at most once.
    #[must_use]
    pub const fn at_most_once(mut self) -> Self {
        self.delivery = Delivery::AtMostOnce;
        self
    }

    /// Adds a compensation.
    #[must_use]
    pub const fn compensated(mut self) -> Self {
        self.compensated = true;
        self
    }

    /// Adds a child failure handler.
    #[must_use]
    pub const fn handling_child_failure(mut self) -> Self {
        self.handles_child_failure = true;
        self
    }

    /// Sets the earlier names.
    #[must_use]
    pub const fn formerly(mut self, names: &'static [&'static str]) -> Self {
        self.was = names;
        self
    }

    /// Sets the steps whose values its code takes.
    #[must_use]
    pub const fn needing(mut self, steps: &'static [&'static str]) -> Self {
        self.needs = steps;
        self
    }

    /// The current and earlier names.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.was.iter().copied())
    }

    /// The first name of the step. Values derived from it stay the same when the step is renamed.
    pub fn first_name(&self) -> &str {
        self.was.first().copied().unwrap_or(&self.name)
    }

    /// Whether the step is stored under this name, by this program or an earlier one.
    pub fn is_named(&self, name: &str) -> bool {
        self.all_names().any(|own| own == name)
    }

    /// Sets the kind.
    #[must_use]
    pub const fn of_kind(mut self, kind: StepKind) -> Self {
        self.kind = kind;
        self
    }
}

/// The error of a definition that cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The topic is empty or too long.
    #[error("saga `{saga}`: topic `{topic}` has {bytes} bytes; 1 to {TOPIC_BYTES_MAX} are possible")]
    Topic {
        /// The saga that handles the topic.
        saga: String,
        /// The topic.
        topic: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The saga's name is empty or too long.
    #[error("saga `{saga}`: the name has {chars} characters; 1 to {NAME_CHARS_MAX} are possible")]
    Saga {
        /// The name.
        saga: String,
        /// Its length in characters.
        chars: usize,
    },
    /// A step's name is empty or too long.
    #[error(
        "saga `{saga}`: step name `{step}` has {chars} characters; 1 to {STEP_NAME_CHARS_MAX} are possible"
    )]
    Step {
        /// The saga.
        saga: String,
        /// The step.
        step: String,
        /// Its length in characters.
        chars: usize,
    },
    /// Two steps share a name, so the stored history would be ambiguous.
    #[error(
        "saga `{saga}`: two steps are named `{step}`, now or by a `was`; give one of them another `name`"
    )]
    RepeatedStep {
        /// The saga.
        saga: String,
        /// The repeated name.
        step: String,
    },
    /// The saga has no step.
    #[error("saga `{saga}` has no step; a saga needs at least one")]
    NoStep {
        /// The saga.
        saga: String,
    },
    /// A text contains a character that PostgreSQL cannot store.
    #[error("saga `{saga}`: the name {text:?} contains a NUL character, which cannot be stored")]
    Nul {
        /// The saga.
        saga: String,
        /// The offending text.
        text: String,
    },
}

impl Definition {
    /// A definition from constants. Nothing is checked here, see [`Definition::check`].
    pub const fn new(saga: &'static str, topic: &'static str, steps: &'static [StepDefinition]) -> Self {
        Self { saga: Cow::Borrowed(saga), topic: Cow::Borrowed(topic), steps: Cow::Borrowed(steps) }
    }

    /// The name of the last step; `None` without steps, which [`Definition::check`] rejects.
    pub fn last_step(&self) -> Option<&str> {
        self.steps.last().map(|step| &*step.name)
    }

    /// The position of a step, by its persisted name or an earlier one.
    pub fn step_index(&self, name: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.is_named(name))
    }

    /// The stored form of the steps, in their order, for other programs that run the saga.
    pub fn recorded_steps(&self) -> Vec<RecordedStep> {
        let recorded = |step: &StepDefinition| RecordedStep {
            name: step.name.to_string(),
            was: step.was.iter().map(|was| (*was).to_owned()).collect(),
            kind: step.kind,
            compensated: step.compensated,
            handles_child_failure: step.handles_child_failure,
            awaits: step.awaits.map(str::to_owned),
        };
        self.steps.iter().map(recorded).collect()
    }

    /// A number that two definitions share exactly if a run can switch between them at any position.
    ///
    /// It is derived from the protocol's data on the steps, and from the shapes of the types that the saga reads from
    /// the database, its messages with their topics among them. The code of the steps is not part of it.
    pub fn fingerprint(&self, types: &[String]) -> Uuid {
        let mut text = String::new();
        for step in &*self.steps {
            let StepDefinition { name, was, needs, compensated, handles_child_failure, kind, awaits, .. } =
                step;
            let _ =
                writeln!(text, "{name:?} {was:?} {needs:?} {compensated} {handles_child_failure} {kind:?}");
            if let Some(signal) = awaits {
                let _ = writeln!(text, "awaits {signal:?}");
            }
        }
        let _ = writeln!(text, "{types:?}");
        Uuid::new_v5(&FINGERPRINTS, text.as_bytes())
    }

    /// Checks that every name can be stored and is unique.
    ///
    /// # Errors
    ///
    /// All errors of this definition, not only the first one.
    pub fn check(&self) -> Result<(), Vec<NameError>> {
        let saga = || self.saga.to_string();
        let mut errors = Vec::new();
        let chars = self.saga.chars().count();
        if chars == 0 || chars > NAME_CHARS_MAX {
            errors.push(NameError::Saga { saga: saga(), chars });
        }
        let bytes = self.topic.len();
        if bytes == 0 || bytes > TOPIC_BYTES_MAX {
            let topic = self.topic.to_string();
            errors.push(NameError::Topic { saga: saga(), topic, bytes });
        }
        if self.steps.is_empty() {
            errors.push(NameError::NoStep { saga: saga() });
        }
        for (index, step) in self.steps.iter().enumerate() {
            let name = || step.name.to_string();
            let chars = step.name.chars().count();
            if chars == 0 || chars > STEP_NAME_CHARS_MAX {
                errors.push(NameError::Step { saga: saga(), step: name(), chars });
            }
            let taken = |name: &str| self.steps[..index].iter().any(|earlier| earlier.is_named(name));
            let repeated = step.all_names().find(|name| taken(name));
            if let Some(name) = repeated {
                errors.push(NameError::RepeatedStep { saga: saga(), step: name.to_string() });
            }
        }
        let texts = [&self.saga, &self.topic].into_iter().chain(self.steps.iter().map(|s| &s.name));
        for text in texts.filter(|text| text.contains('\0')) {
            errors.push(NameError::Nul { saga: saga(), text: text.to_string() });
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_name_is_reported_at_once() {
        let step = |name: String| StepDefinition { name: name.into(), ..StepDefinition::new("") };
        let definition = Definition {
            saga: "s".repeat(NAME_CHARS_MAX + 1).into(),
            topic: "ä".repeat(32).into(),
            steps: vec![step("a".into()), step("a".into()), step("x\0".into()), step(String::new())].into(),
        };
        let errors = definition.check().unwrap_err();
        let kinds: Vec<_> = errors.iter().map(std::mem::discriminant).collect();
        assert_eq!(errors.len(), 5, "{errors:?}");
        assert_eq!(kinds.iter().filter(|k| **k == kinds[0]).count(), 1);
        assert!(matches!(&errors[1], NameError::Topic { bytes: 64, .. }));
    }
}
