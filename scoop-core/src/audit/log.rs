//! What an audit reads: the event log and what else is known of a history, as plain values.

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::{Context, EventKind, Failure, Lineage};

/// A history: every event of one or more hierarchies, and what is needed to judge them.
///
/// ```
/// use scoop_core::audit::{AtRest, Log, audit};
///
/// assert!(audit(&Log::default(), &[], AtRest::Yes).is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// All messages that the events mention.
    pub messages: Vec<LoggedMessage>,
    /// All events, in the order of their commits. The order of their times will do, too, as it is the
    /// same within a hierarchy.
    pub events: Vec<LoggedEvent>,
    /// Who listened, and when. A topic of which nothing is said here has nobody that must have heard.
    pub listings: Vec<Listing>,
    /// How far apart the time of a listing and that of an emission must be for it to be certain which
    /// was first; likewise for deadlines and requests to give up. Zero where one clock is read under one
    /// lock.
    pub tolerance: Duration,
    /// The runs that an operator has seen to: who could not be undone may go on there.
    pub repaired: Vec<Uuid>,
    /// The runs that no program at hand can continue: at rest they, and who waits for them, may be
    /// unfinished.
    pub set_aside: Vec<Uuid>,
    /// Messages that started a hierarchy without any handler and were redelivered.
    pub redeliveries: Vec<Redelivery>,
}

/// A delivery of a message to the handlers that were subscribed at a time after its emission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redelivery {
    /// The message.
    pub message: Uuid,
    /// The time of the delivery.
    pub at: OffsetDateTime,
}

/// A message that was emitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedMessage {
    /// Its id.
    pub id: Uuid,
    /// The topic of the message.
    pub topic: String,
}

/// A row of the event log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedEvent {
    /// About which message.
    pub message: Uuid,
    /// What happened.
    pub kind: EventKind,
    /// Whose run wrote it; none if it came from outside.
    pub handler: Option<String>,
    /// Which worker wrote it.
    pub identifier: Option<String>,
    /// In which step, or part of a rollback.
    pub step: Option<String>,
    /// The lineage of the run, or of what the event is about.
    pub lineage: Lineage,
    /// When.
    pub at: OffsetDateTime,
    /// What went wrong.
    pub exception: Option<Failure>,
    /// Which step is next.
    pub next_step: Option<usize>,
    /// How often the children's failures had been handled before.
    pub handler_iteration: Option<u32>,
    /// What travels with the run.
    pub context: Context,
}

/// That a handler listened on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The topic.
    pub topic: String,
    /// The handler.
    pub handler: String,
    /// Since when.
    pub since: OffsetDateTime,
    /// Until when, if it does no more.
    pub until: Option<OffsetDateTime>,
    /// Whether it was struck out: what it had not begun by then was dropped.
    pub dropped: bool,
}

/// Whether a history is complete: whether nobody has anything to do any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtRest {
    /// Everything must have ended.
    Yes,
    /// It is only the beginning of a history; what has not happened yet may still happen.
    No,
}

/// Something that code of the user did, noted by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// By which run: the last id of its lineage.
    pub run: Uuid,
    /// In which step, by its name in the definition.
    pub step: String,
    /// In which code of the step.
    pub part: Part,
    /// In which loop iteration of the step.
    pub iteration: u32,
    /// Where it was noted.
    pub place: Place,
}

/// Which code of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The step itself.
    Step,
    /// Its compensation.
    Compensation,
}

/// Where an effect was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the transaction of the step: it is there exactly if the outcome of the step is.
    Transaction,
    /// Anywhere else, once for each attempt: it may be there more than once, or although the attempt
    /// came to nothing.
    Outside,
}
