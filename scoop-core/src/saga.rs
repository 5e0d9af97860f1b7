//! A saga as plain data.

use std::borrow::Cow;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::TOPIC_BYTES_MAX;

/// The longest saga name in characters. It is stored in 255 characters together with the
/// worker that ran it, and that needs some of them.
pub const NAME_CHARS_MAX: usize = 180;

/// The longest step name in characters: rolling back writes it with a prefix and a suffix into
/// 255 characters.
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
    /// The name that is stored with everything the saga does.
    pub saga: Cow<'static, str>,
    /// Where it listens.
    pub topic: Cow<'static, str>,
    /// The steps in their order; never empty.
    pub steps: Cow<'static, [StepDefinition]>,
}

/// One step of a saga, as far as the protocol must know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepDefinition {
    /// The persisted name.
    pub name: Cow<'static, str>,
    /// Earlier persisted names: runs under way and finished runs may still have them.
    pub was: &'static [&'static str],
    /// The steps whose values are parameters of its code, except those taken as an `Option`.
    pub needs: &'static [&'static str],
    /// Whether there is code to undo it.
    pub compensated: bool,
    /// Whether there is code that handles the failures of its children.
    pub handles_child_failure: bool,
    /// What it is for.
    pub kind: StepKind,
}

/// A step of a definition as it is stored: its names, what it is for, and which code it has besides its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStep {
    /// The persisted name.
    pub name: String,
    /// Earlier persisted names, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub was: Vec<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "StepKind::is_code")]
    pub kind: StepKind,
    /// Whether there is code to undo it. A record that does not say so counts as if there were.
    #[serde(default = "unknown")]
    pub compensated: bool,
    /// Whether there is code that handles the failures of its children. A record that does not say so counts as if there
    /// were.
    #[serde(default = "unknown")]
    pub handles_child_failure: bool,
}

/// What nothing is known of is not passed over.
fn unknown() -> bool {
    true
}

/// What a step is for. What the user writes as one step may be two for the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// It runs the user's code.
    #[default]
    Code,
    /// It waits for the time at which the step after it is due.
    Wait,
    /// It cleans up after the step before it, once that and its children are done.
    Finally,
}

impl RecordedStep {
    /// Whether the step is stored under this name, at that time or before.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.was.iter().any(|was| was == name)
    }
}

impl StepKind {
    fn is_code(&self) -> bool {
        *self == Self::Code
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
        }
    }

    /// The same step, with code to undo it.
    #[must_use]
    pub const fn compensated(mut self) -> Self {
        self.compensated = true;
        self
    }

    /// The same step, with code that handles the failures of its children.
    #[must_use]
    pub const fn handling_child_failure(mut self) -> Self {
        self.handles_child_failure = true;
        self
    }

    /// The same step, which had these names before.
    #[must_use]
    pub const fn formerly(mut self, names: &'static [&'static str]) -> Self {
        self.was = names;
        self
    }

    /// The same step, whose code takes the values of these steps.
    #[must_use]
    pub const fn needing(mut self, steps: &'static [&'static str]) -> Self {
        self.needs = steps;
        self
    }

    /// The names that the step has or had.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.was.iter().copied())
    }

    /// The first name of the step. Values derived from it stay the same when the step is renamed.
    pub fn first_name(&self) -> &str {
        self.was.first().copied().unwrap_or(&self.name)
    }

    /// Whether the step is stored under this name, now or by an earlier program.
    pub fn is_named(&self, name: &str) -> bool {
        self.all_names().any(|own| own == name)
    }

    /// The same step, of this kind.
    #[must_use]
    pub const fn of_kind(mut self, kind: StepKind) -> Self {
        self.kind = kind;
        self
    }
}

/// Why a name cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The topic is empty or too long.
    #[error("saga `{saga}`: topic `{topic}` has {bytes} bytes; 1 to {TOPIC_BYTES_MAX} are possible")]
    Topic {
        /// The saga that listens there.
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
        /// The name that stands twice.
        step: String,
    },
    /// There is no step.
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

    /// The name of the last step; none if there are no steps, which [`Definition::check`] does not let pass.
    pub fn last_step(&self) -> Option<&str> {
        self.steps.last().map(|step| &*step.name)
    }

    /// The position of a step, by its persisted name or an earlier one.
    pub fn step_index(&self, name: &str) -> Option<usize> {
        self.steps.iter().position(|step| step.is_named(name))
    }

    /// The steps in their order, as they are stored for other programs that run the saga.
    pub fn recorded_steps(&self) -> Vec<RecordedStep> {
        let recorded = |step: &StepDefinition| RecordedStep {
            name: step.name.to_string(),
            was: step.was.iter().map(|was| (*was).to_owned()).collect(),
            kind: step.kind,
            compensated: step.compensated,
            handles_child_failure: step.handles_child_failure,
        };
        self.steps.iter().map(recorded).collect()
    }

    /// A number that two definitions share exactly if a run can change between them at any place.
    ///
    /// It is derived from all that the protocol knows of the steps, and from the shapes of the types that the saga reads
    /// from the database; the code of the steps is not part of it.
    pub fn fingerprint(&self, types: &[String]) -> Uuid {
        let mut text = format!("{:?}\n", self.topic);
        for step in &*self.steps {
            let StepDefinition { name, was, needs, compensated, handles_child_failure, kind } = step;
            let _ =
                writeln!(text, "{name:?} {was:?} {needs:?} {compensated} {handles_child_failure} {kind:?}");
        }
        let _ = writeln!(text, "{types:?}");
        Uuid::new_v5(&FINGERPRINTS, text.as_bytes())
    }

    /// Whether every name can be stored and told from the others.
    ///
    /// # Errors
    ///
    /// All that is wrong with this definition, not only the first thing.
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
