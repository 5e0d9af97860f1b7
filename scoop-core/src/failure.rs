//! Failures as stored data: a [`Failure`] crosses services and outlives the process.
//!
//! A failure is nested at most 40 deep, since readers of JSON limit nesting. The wrappers in the middle are dropped, the
//! causes stay. The value of an error travels as a cause of the type `scoop:data`.

mod bounds;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

pub use self::bounds::{FAILURE_CAUSES_MAX, FAILURE_TEXT_BYTES_MAX};
use crate::{Escaped, report};

/// The maximum nesting of failures. JSON readers limit nesting, and an unreadable failure would leave its run stuck.
/// Deeper failures are kept, without the wrappers between.
const DEPTH_MAX: usize = 40;

pub(crate) const NO_MESSAGE: &str = "<no message>";

/// The types of the protocol's own failures, which wrap others.
pub(crate) const CHILD_ROLLED_BACK: &str = "ChildRolledBackException";
pub(crate) const CHILD_ROLLBACK_FAILED: &str = "ChildRollbackFailedException";
pub(crate) const PARENT_SAID_SO: &str = "ParentSaidSoException";
pub(crate) const GAVE_UP: &str = "GaveUpException";

/// Their messages where no step is involved. The reference implementation leaves the message empty then.
pub(crate) const LAUNCHED_FAILED: &str = "what it launched has failed as well";
pub(crate) const GAVE_UP_WORDS: &str = "gave up";

/// A failure as data: it is stored with the run it ended and travels to the ancestors.
///
/// The five parts are the stored format, which other programs may read.
/// Display it for one line; [`Failure::report`] for the whole tree; [`Failure::find`] for the
/// original error. A clone shares the causes, however many there are. Printed text is
/// [escaped](Escaped).
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::Failure;
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
    #[serde(deserialize_with = "read_message")]
    pub message: String,
    /// The kind of failure: for a Rust error its [code](crate::FailureCode), or else the name of its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its origin: `saga[worker]` for a run, free text otherwise.
    pub source: String,
    /// Places in the code, innermost first; empty for failures of the protocol itself.
    #[serde(default, deserialize_with = "read_list")]
    pub stack_trace: Vec<Frame>,
    /// The causes, the direct one first. An entry of type `scoop:data` is not a cause: it holds the value that
    /// [`Failure::find`] returns.
    #[serde(default, deserialize_with = "read_list")]
    pub causes: Arc<[Failure]>,
}

/// A place in the code.
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

impl From<&Location<'_>> for Frame {
    fn from(at: &Location<'_>) -> Self {
        let (file_name, line_number) = (at.file().to_owned(), at.line().into());
        Self { file_name, line_number, class_name: None, function_name: None }
    }
}

impl Failure {
    /// A failure without frames and causes. NUL characters are dropped, since PostgreSQL cannot store them. A blank
    /// message becomes `<no message>`.
    pub fn new(kind: impl AsRef<str>, message: impl AsRef<str>, source: impl AsRef<str>) -> Self {
        Self {
            message: non_blank(message.as_ref()),
            kind: storable(kind.as_ref()),
            source: storable(source.as_ref()),
            stack_trace: Vec::new(),
            causes: Arc::default(),
        }
    }

    /// The same failure with these causes.
    #[must_use]
    pub fn caused_by(mut self, causes: impl IntoIterator<Item = Failure>) -> Self {
        self.causes = self.causes.iter().cloned().chain(causes).collect();
        self
    }

    /// Whether `other` is this failure or, at any depth, one of its causes.
    pub fn contains(&self, other: &Failure) -> bool {
        self == other || self.causes.iter().any(|cause| cause.contains(other))
    }

    /// The failures at the ends of the tree: those that no other failure caused. Causes left out by
    /// [`Failure::bounded`] are not among them.
    ///
    /// Where children failed and a compensation of them failed, too, the reason of their rollback comes before the failure
    /// of the compensation. [`Failure::failed_compensation`] returns the latter.
    ///
    /// ```
    /// # use scoop_core::Failure;
    /// let root = Failure::new("OutOfStock", "no chairs left", "stock[w1]");
    /// let seen_from_above = Failure::new("ChildRolledBackException", "", "orders[w1]").caused_by([root.clone()]);
    /// assert_eq!(seen_from_above.root_causes(), [&root]);
    /// ```
    pub fn root_causes(&self) -> Vec<&Failure> {
        self.tree().filter(|it| it.replaced_count().is_none() && it.reasons().next().is_none()).collect()
    }

    /// The whole tree of causes with their places in the code, for people.
    ///
    /// Failures that only wrap others have a short text. A cause of several failures is printed once; later occurrences
    /// refer to its number.
    ///
    /// ```
    /// # use scoop_core::Failure;
    /// let stock = Failure::new("stock.out", "no chairs left", "stock[w1]");
    /// let text = "Child failure occurred while suspended in step [reserve]";
    /// let orders = Failure::new("ChildRolledBackException", text, "orders[w2]").caused_by([stock]);
    /// assert_eq!(
    ///     orders.report(),
    ///     "[orders[w2]] what step `reserve` launched has failed\n  \
    ///        caused by [stock[w1]] stock.out: no chairs left\n"
    /// );
    /// ```
    pub fn report(&self) -> String {
        report::of(self)
    }

    /// The first cause in a few words, on one line, and the number of other causes.
    ///
    /// ```
    /// # use scoop_core::Failure;
    /// let stock = Failure::new("stock.out", "no chairs left", "stock[w1]");
    /// let orders = Failure::new("ChildRolledBackException", "", "orders[w2]").caused_by([stock]);
    /// assert_eq!(orders.summary(), "no chairs left");
    /// ```
    pub fn summary(&self) -> String {
        report::summary(self)
    }

    /// The compensation's failure in a few words, on one line, if this is the failure of a rollback.
    ///
    /// If a message that the compensation launched has failed, it names the compensation, the saga that failed, and the
    /// first cause.
    ///
    /// ```
    /// # use scoop_core::Failure;
    /// let refund = Failure::new("bank.closed", "the bank is closed", "payments[w1]");
    /// let orders = Failure::new("ChildRollbackFailedException", "", "orders[w2]").caused_by([refund]);
    /// assert_eq!(orders.rollback_summary(), "the bank is closed");
    /// ```
    pub fn rollback_summary(&self) -> String {
        report::rollback_summary(self)
    }

    /// The failure of the first compensation that failed, if this is the failure of a rollback. It is below those of the runs
    /// above, which only pass it on.
    ///
    /// ```
    /// # use scoop_core::Failure;
    /// let refund = Failure::new("bank.closed", "the bank is closed", "payments[w1]");
    /// let orders = Failure::new("ChildRollbackFailedException", "", "orders[w2]").caused_by([refund.clone()]);
    /// assert_eq!(orders.failed_compensation(), &refund);
    /// ```
    pub fn failed_compensation(&self) -> &Failure {
        report::failed_compensation(self)
    }

    /// The causes, without the value of the error.
    pub(crate) fn reasons(&self) -> impl DoubleEndedIterator<Item = &Failure> {
        self.causes.iter().filter(|cause| !cause.is_data())
    }

    /// The same, with the reasons for which children rolled back before failures of their rollbacks. These are stored in
    /// the other order, which the protocol determines.
    fn ranked_reasons(&self) -> impl DoubleEndedIterator<Item = &Failure> {
        let has_failed_rollbacks = self.simple_kind() == CHILD_ROLLBACK_FAILED;
        let is_first = move |cause: &&Failure| !has_failed_rollbacks || cause.has_reasons_of_children();
        self.reasons().filter(is_first).chain(self.reasons().filter(move |cause| !is_first(cause)))
    }

    /// Whether its causes are those for which children rolled back, beside failures of their rollbacks.
    fn has_reasons_of_children(&self) -> bool {
        self.simple_kind() == CHILD_ROLLED_BACK
            && [LAUNCHED_FAILED, NO_MESSAGE].contains(&self.message.as_str())
    }

    /// The same failure with the causes at any depth in the order of [`Failure::tree`], so that they keep it where wrappers
    /// are dropped.
    fn ranked(mut self) -> Self {
        let data = self.causes.iter().filter(|cause| cause.is_data());
        self.causes = self.ranked_reasons().chain(data).cloned().map(Failure::ranked).collect();
        self
    }

    /// This failure and all its causes at any depth, each before its own causes. The first end of the tree is the main cause of
    /// a rollback.
    pub(crate) fn tree(&self) -> impl Iterator<Item = &Failure> {
        let mut ahead = vec![self];
        std::iter::from_fn(move || {
            let next = ahead.pop()?;
            ahead.extend(next.ranked_reasons().rev());
            Some(next)
        })
    }

    /// The last part of the type's name. The reference implementation writes a prefix.
    pub(crate) fn simple_kind(&self) -> &str {
        self.kind.rsplit(['.', ':', '$']).next().unwrap_or(&self.kind)
    }

    /// Whether this only wraps failures of children, or of the parent.
    pub fn is_wrapper(&self) -> bool {
        let wrappers = [CHILD_ROLLED_BACK, CHILD_ROLLBACK_FAILED, PARENT_SAID_SO];
        wrappers.contains(&self.simple_kind())
    }

    /// The nesting of failures, this one included.
    fn depth(&self) -> usize {
        1 + self.reasons().map(Failure::depth).max().unwrap_or(0)
    }

    /// The same failure, limited to that depth: without the outermost wrappers, or else without the failures between
    /// the first ones and the last.
    fn prune(mut self, depth_max: usize) -> Vec<Failure> {
        if self.depth() <= depth_max {
            return vec![self];
        }
        if self.is_wrapper() || depth_max == 1 {
            return self.reasons().cloned().flat_map(|cause| cause.prune(depth_max)).collect();
        }
        let causes = self.causes.iter().cloned();
        self.causes = causes.flat_map(|cause| cause.prune(depth_max - 1)).collect();
        vec![self]
    }

    /// Wraps these causes in this failure, within [`DEPTH_MAX`].
    pub(crate) fn wrap(self, causes: impl IntoIterator<Item = Failure>) -> Self {
        self.caused_by(causes.into_iter().flat_map(|cause| cause.prune(DEPTH_MAX - 1)))
    }

    /// The failure of a run whose children, started in `step`, failed and rolled back.
    pub(crate) fn child_rolled_back(step: Option<&str>, source: &str, rolled: Vec<Failure>) -> Self {
        let of_step = |step| format!("Child failure occurred while suspended in step [{step}]");
        let message = step.map_or(LAUNCHED_FAILED.into(), of_step);
        Self::new(CHILD_ROLLED_BACK, message, source).wrap(rolled)
    }

    /// The failure of a run whose children, started in `step`, failed to roll back.
    pub(crate) fn child_rollback_failed(step: &str, source: &str, causes: Vec<Failure>) -> Self {
        let message = format!("Child rollback failure occurred while suspended in step [{step}]");
        Self::new(CHILD_ROLLBACK_FAILED, message, source).wrap(causes)
    }

    /// The failure of a run that was cancelled, or missed its deadlines.
    pub fn gave_up(source: &str, reasons: Vec<Failure>) -> Self {
        let words: Vec<_> = reasons.iter().map(report::words).collect();
        let message = match words.is_empty() {
            true => GAVE_UP_WORDS.into(),
            false => format!("{GAVE_UP_WORDS}: {}", words.join("; ")),
        };
        Self::new(GAVE_UP, message, source).wrap(reasons)
    }

    /// Whether it is that of a run that gave up: it was cancelled, or had missed a deadline.
    pub fn is_giving_up(&self) -> bool {
        self.simple_kind() == GAVE_UP
    }

    /// The cause of a requested rollback: the parent run, with this source, rolls back because of `cause`.
    pub(crate) fn parent_said_so(source: &str, cause: Failure) -> Self {
        let message = format!("{}: {}", parent_rolls_back(source), cause.summary());
        Self::new(PARENT_SAID_SO, message, source).wrap(vec![cause])
    }
}

/// Names the saga of the parent that rolls back, by its source `saga[worker]`.
pub(crate) fn parent_rolls_back(source: &str) -> String {
    let saga = source.split_once('[').map_or(source, |(saga, _)| saga);
    format!("the parent saga `{saga}` rolls back")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, kind, message) = (Escaped(&self.source), Escaped(&self.kind), Escaped(&self.message));
        write!(f, "[{source}] {kind}: {message}")?;
        match self.simple_kind() {
            _ if self.reasons().next().is_none() => Ok(()),
            CHILD_ROLLED_BACK => write!(f, ": {}", self.summary()),
            CHILD_ROLLBACK_FAILED => write!(f, ": {}", self.rollback_summary()),
            _ => Ok(()),
        }
    }
}

/// The text without NUL, the only character that PostgreSQL cannot store.
fn storable(text: &str) -> String {
    text.replace('\0', "")
}

/// A storable message that is never blank.
fn non_blank(text: &str) -> String {
    let message = storable(text);
    if message.trim().is_empty() { NO_MESSAGE.into() } else { message }
}

fn read_message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(non_blank(&String::deserialize(deserializer)?))
}

/// A missing list or null is an empty list. A failure that cannot be read would leave its run stuck.
fn read_list<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
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
    fn deeply_wrapped_failure_can_be_read_and_keeps_its_cause() {
        let mut failure = Failure::new("OutOfStock", "no chairs left", "stock[w]");
        for _ in 0..500 {
            failure = Failure::child_rolled_back(Some("0"), "above[w]", vec![failure]);
        }
        let json = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), failure);
        assert_eq!(failure.root_causes()[0].message, "no chairs left");
        assert_eq!(failure.depth(), DEPTH_MAX);
    }

    #[test]
    fn wrappers_are_dropped_before_failures_of_users() {
        let said = |level: usize| Failure::new("T", level.to_string(), "s[w]");
        let mut failure = said(0);
        for level in 1..100 {
            failure = Failure::child_rolled_back(Some("0"), "above[w]", vec![failure]);
            if level % 10 == 0 {
                failure = said(level).wrap([failure]);
            }
        }
        let said_by = |failure: &Failure| {
            let said = failure.tree().filter(|it| it.kind == "T").map(|it| it.message.clone());
            said.collect::<Vec<_>>()
        };
        assert_eq!(failure.depth(), DEPTH_MAX);
        assert_eq!(said_by(&failure), ["90", "80", "70", "60", "50", "40", "30", "20", "10", "0"]);

        let chain = (1..100).fold(said(0), |failure, level| said(level).wrap([failure]));
        assert_eq!(chain.depth(), DEPTH_MAX);
        let said = said_by(&chain);
        assert_eq!((&*said[0], &*said[1], &*said[said.len() - 1]), ("99", "98", "0"));
    }

    #[test]
    fn a_clone_shares_the_causes() {
        let failure = Failure::new("T", "m", "s").caused_by([Failure::new("U", "n", "s")]);
        assert!(Arc::ptr_eq(&failure.causes, &failure.clone().causes));
    }

    #[test]
    fn a_message_of_several_lines_is_displayed_on_one() {
        let failure = Failure::new("T\u{1b}[0m", "first\nsecond", "s\r");
        assert_eq!(failure.to_string(), r"[s\r] T\u{1b}[0m: first\nsecond");
    }

    #[test]
    fn failure_because_of_a_child_is_displayed_with_the_first_cause() {
        let cause = Failure::new("NoCarrier", "none goes\nthere", "ship[w]");
        let failure = Failure::child_rolled_back(Some("ship"), "orders[w]", vec![cause.clone()]);
        let above = Failure::child_rolled_back(Some("order"), "shop[w]", vec![failure.clone()]);
        for failure in [failure, above] {
            assert!(failure.to_string().ends_with(r"]: none goes\nthere"), "{failure}");
        }
        let failure = Failure::child_rollback_failed("ship", "orders[w]", vec![cause]);
        assert!(failure.to_string().ends_with(r"[ship]: none goes\nthere"), "{failure}");
    }

    #[test]
    fn texts_that_cannot_be_stored_are_corrected() {
        assert_eq!(Failure::new("T", "a\0b", "s").message, "ab");
        assert_eq!(Failure::new("T", " ", "s").message, "<no message>");
    }

    #[test]
    fn failure_of_the_protocol_has_a_message_with_its_reason() {
        let asked = |why| Failure::new("CancellationRequestedException", why, "till");
        let gave_up = |reasons| Failure::gave_up("orders[w]", reasons).to_string();
        assert_eq!(gave_up(vec![]), "[orders[w]] GaveUpException: gave up");
        assert_eq!(
            gave_up(vec![asked("customer left"), asked(""), Failure::new("Missed", "too late", "s")]),
            "[orders[w]] GaveUpException: gave up: cancellation was requested: customer left; \
             cancellation was requested; too late"
        );
        let out = Failure::new("stock.out", "no chairs left", "stock[w]");
        assert_eq!(
            Failure::parent_said_so("orders[w]", out.clone()).message,
            "the parent saga `orders` rolls back: no chairs left"
        );
        assert_eq!(Failure::child_rolled_back(None, "s", vec![out]).message, LAUNCHED_FAILED);
    }
}
