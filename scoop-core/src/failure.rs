//! What went wrong, as stored: a [`Failure`] crosses services and outlives the process.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many failures the protocol wraps around each other. JSON readers set a limit to nesting,
/// and a failure that cannot be read would leave the run it ended stuck. What lies further down
/// is kept, without the wrappers between.
const WRAPPED_MAX: usize = 40;

/// The message of a failure that has none.
const NO_MESSAGE: &str = "<no message>";

/// What went wrong, as data: it is stored with the run it ended and travels to the runs above.
///
/// The five parts are the wire format that every participant of the protocol reads and writes.
/// Display it for one line; [`Failure::report`] for the whole tree.
///
/// ```
/// use scoop_core::Failure;
///
/// let cause = Failure::new("IoError", "no route to host", "payments[w1]");
/// let failure = Failure::new("Declined", "card declined", "payments[w1]").caused_by([cause]);
/// assert_eq!(failure.to_string(), "[payments[w1]] Declined: card declined");
/// assert!(failure.report().contains("no route to host"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The text, for people. Never empty.
    pub message: String,
    /// What kind of failure: for a Rust error the name of its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it arose: `saga[worker]` for a run, free text otherwise.
    pub source: String,
    /// Places in the code, innermost first; empty for failures of the protocol itself.
    pub stack_trace: Vec<Frame>,
    /// What led to it; the direct cause first.
    pub causes: Vec<Failure>,
}

/// A place in somebody's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    /// The file, as its compiler names it.
    pub file_name: String,
    /// The line, counted from 1.
    pub line_number: i64,
    /// The class, in languages that have them.
    pub class_name: Option<String>,
    /// The function, where it is known.
    pub function_name: Option<String>,
}

impl Failure {
    /// A failure without frames and causes. NUL characters are dropped, since no participant
    /// could store them; a blank message becomes `<no message>`.
    pub fn new(kind: impl AsRef<str>, message: impl AsRef<str>, source: impl AsRef<str>) -> Self {
        let message = storable(message.as_ref());
        Self {
            message: if message.trim().is_empty() { NO_MESSAGE.into() } else { message },
            kind: storable(kind.as_ref()),
            source: storable(source.as_ref()),
            stack_trace: Vec::new(),
            causes: Vec::new(),
        }
    }

    /// The same failure with these causes.
    #[must_use]
    pub fn caused_by(mut self, causes: impl IntoIterator<Item = Failure>) -> Self {
        self.causes.extend(causes);
        self
    }

    /// Whether `other` is this failure or, at any depth, one of its causes.
    pub fn contains(&self, other: &Failure) -> bool {
        self == other || self.causes.iter().any(|cause| cause.contains(other))
    }

    /// The failures at the ends of the tree: those that no other failure caused.
    ///
    /// ```
    /// # use scoop_core::Failure;
    /// let root = Failure::new("OutOfStock", "no chairs left", "stock[w1]");
    /// let seen_from_above = Failure::new("ChildRolledBackException", "", "orders[w1]").caused_by([root.clone()]);
    /// assert_eq!(seen_from_above.root_causes(), [&root]);
    /// ```
    pub fn root_causes(&self) -> Vec<&Failure> {
        if self.causes.is_empty() {
            return vec![self];
        }
        self.causes.iter().flat_map(Failure::root_causes).collect()
    }

    /// The whole tree of causes with their places in the code, one line each, for people.
    pub fn report(&self) -> String {
        let mut text = String::new();
        self.report_into(&mut text, 0);
        text
    }

    /// How many failures lie within each other here, this one included.
    fn depth(&self) -> usize {
        1 + self.causes.iter().map(Failure::depth).max().unwrap_or(0)
    }

    /// The same failure around these, which say what it is about.
    fn around(self, causes: Vec<Failure>) -> Self {
        let shortened = causes.into_iter().flat_map(|cause| match cause.depth() < WRAPPED_MAX {
            true => vec![cause],
            false => cause.causes,
        });
        self.caused_by(shortened)
    }

    fn report_into(&self, text: &mut String, depth: usize) {
        let indent = "  ".repeat(depth);
        let label = if depth == 0 { "" } else { "caused by " };
        text.push_str(&format!("{indent}{label}{self}\n"));
        for frame in &self.stack_trace {
            text.push_str(&format!("{indent}    at {}:{}\n", frame.file_name, frame.line_number));
        }
        for cause in &self.causes {
            cause.report_into(text, depth + 1);
        }
    }

    /// The failure of a run whose children, started in `step`, failed and rolled back.
    pub(crate) fn child_rolled_back(step: Option<&str>, source: &str, rolled: Vec<Failure>) -> Self {
        let message = step
            .map_or(String::new(), |step| format!("Child failure occurred while suspended in step [{step}]"));
        Self::new("ChildRolledBackException", message, source).around(rolled)
    }

    /// The failure of a run whose children, started in `step`, could not roll back.
    pub(crate) fn child_rollback_failed(step: &str, source: &str, causes: Vec<Failure>) -> Self {
        let message = format!("Child rollback failure occurred while suspended in step [{step}]");
        Self::new("ChildRollbackFailedException", message, source).around(causes)
    }

    /// The failure of a run that was asked to give up, or missed its deadlines.
    pub fn gave_up(source: &str, reasons: Vec<Failure>) -> Self {
        Self::new("GaveUpException", "", source).around(reasons)
    }

    /// Why a child has to roll back: the run above does, because of `cause`.
    pub(crate) fn parent_said_so(source: &str, cause: Failure) -> Self {
        Self::new("ParentSaidSoException", "", source).around(vec![cause])
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}: {}", self.source, self.kind, self.message)
    }
}

/// PostgreSQL stores every character but NUL.
fn storable(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_exactly_the_keys_of_the_protocol() {
        let mut failure = Failure::new("ExitStatus", "non-zero", "external-system");
        failure.stack_trace.push(Frame {
            file_name: "script.sh".into(),
            line_number: 42,
            class_name: None,
            function_name: None,
        });
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(
            json,
            r#"{"message":"non-zero","type":"ExitStatus","source":"external-system","stackTrace":[{"fileName":"script.sh","lineNumber":42,"className":null,"functionName":null}],"causes":[]}"#
        );
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
    }

    #[test]
    fn a_failure_that_travelled_far_can_still_be_read_and_keeps_its_cause() {
        let mut failure = Failure::new("OutOfStock", "no chairs left", "stock[w]");
        for _ in 0..500 {
            failure = Failure::child_rolled_back(Some("0"), "above[w]", vec![failure]);
        }
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
        assert_eq!(failure.root_causes()[0].message, "no chairs left");
        assert_eq!(failure.depth(), WRAPPED_MAX);
    }

    #[test]
    fn texts_that_cannot_be_stored_are_mended() {
        assert_eq!(Failure::new("T", "a\0b", "s").message, "ab");
        assert_eq!(Failure::new("T", " ", "s").message, "<no message>");
    }
}
