//! The input of an audit: the event log and other facts of a history, as plain values.

use scoop_core::{Context, EventKind, Failure, Lineage, SignalKey, read_output_name};
use serde_json::Value;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

/// A history: every event of one or more hierarchies, and the facts needed to audit them.
///
/// ```
/// use scoop_audit::{Quiescence, Log, audit};
///
/// assert!(audit(&Log::default(), &[], Quiescence::Yes).is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// All messages that the events mention.
    pub messages: Vec<LoggedMessage>,
    /// All events, in the order of their commits. The order of their times works, too, as it is the same within a
    /// hierarchy.
    pub events: Vec<LoggedEvent>,
    /// The subscriptions of handlers. Handlers of a topic without any subscription here are not checked.
    pub subscriptions: Vec<Subscription>,
    /// The minimum distance between the times of a subscription and of an emission that makes their order certain.
    /// It also applies to deadlines and cancellation requests. Zero where one clock is read under one lock.
    pub tolerance: Duration,
    /// The runs in which an operator intervened: a failed rollback may continue there.
    pub repaired: Vec<Uuid>,
    /// The stuck runs: at rest they and the runs waiting for them may be unfinished.
    pub set_aside: Vec<Uuid>,
    /// Messages that started a hierarchy without any handler and were redelivered.
    pub redeliveries: Vec<Redelivery>,
    /// The rows of tables beside the event log, if they are known. Without them, signals, steps that run at most once,
    /// the numbers of executions, the list of failed rollbacks, and the ended runs are not checked.
    pub tables: Option<Tables>,
}

/// Rows of tables beside the event log, about the same runs.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// All signals that were sent.
    pub signals: Vec<LoggedSignal>,
    /// The outputs of steps; those of waits are the signals that they ended with.
    pub outputs: Vec<LoggedOutput>,
    /// The steps that run at most once and have begun.
    pub begun_steps: Vec<BegunStep>,
    /// The executions of runs that continued as new, without the first one of each run.
    pub executions: Vec<LoggedExecution>,
    /// The runs whose rollback has failed and that have not ended.
    pub failed_runs: Vec<FailedRun>,
    /// The runs that have ended.
    pub ended_runs: Vec<EndedRun>,
}

/// A run whose rollback has failed, and that has not ended, as its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRun {
    /// The run.
    pub run: Uuid,
    /// Whether it rests as failed. Otherwise a repair is under way.
    pub rests: bool,
    /// The run that waits for it, or that failed because of it.
    pub parent: Option<Uuid>,
}

/// A run that has ended, as its row says.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRun {
    /// The lineage of the run.
    pub lineage: Lineage,
    /// The message that it handled.
    pub message: Uuid,
    /// The handler.
    pub handler: String,
    /// What became of it.
    pub outcome: RunOutcome,
    /// Why it was rolled back.
    pub failure: Option<Failure>,
    /// Why its rollback had failed the last time, if it was repaired.
    pub rollback_failure: Option<Failure>,
    /// The context that it ended with.
    pub context: Context,
    /// The time of its end.
    pub ended_at: OffsetDateTime,
}

/// What became of a run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// It committed.
    Committed,
    /// It is rolled back.
    RolledBack,
    /// It never began.
    Dropped,
}

/// A signal that was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedSignal {
    /// Its id.
    pub id: Uuid,
    /// Its name and key.
    pub to: SignalKey,
    /// Its payload.
    pub payload: Value,
    /// The time at which it was sent.
    pub sent_at: OffsetDateTime,
    /// The time until which it is kept if no run awaits it.
    pub kept_until: OffsetDateTime,
    /// The time of its delivery, if it was delivered.
    pub delivered_at: Option<OffsetDateTime>,
    /// The number of runs that it reached.
    pub reached: u64,
}

/// The output of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedOutput {
    /// The run.
    pub run: Uuid,
    /// The step.
    pub step: String,
    /// The number of the step's suspension among those of the forward path of the run, from 0 on.
    pub number: usize,
    /// The output.
    pub value: Value,
}

/// A step that runs at most once, and whose code may have run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunStep {
    /// The run.
    pub run: Uuid,
    /// The step.
    pub step: String,
    /// The number that its suspension has among those of the forward path of the run, from 0 on.
    pub number: usize,
    /// The time at which it began.
    pub at: OffsetDateTime,
}

/// An execution of a run that continued as new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedExecution {
    /// The run.
    pub run: Uuid,
    /// The number of executions before it.
    pub number: usize,
    /// The time at which it began.
    pub began_at: OffsetDateTime,
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
    /// The message of the event.
    pub message: Uuid,
    /// The kind of the event.
    pub kind: EventKind,
    /// The handler whose run wrote it; `None` if it came from outside.
    pub handler: Option<String>,
    /// The worker that wrote it.
    pub identifier: Option<String>,
    /// The step, or part of a rollback.
    pub step: Option<String>,
    /// The lineage of the run, or of the subject of the event.
    pub lineage: Lineage,
    /// The time of the event.
    pub at: OffsetDateTime,
    /// The failure.
    pub exception: Option<Failure>,
    /// The position of the next step.
    pub next_step: Option<usize>,
    /// The number of earlier handler calls for the children's failures.
    pub handler_iteration: Option<u32>,
    /// The context of the run.
    pub context: Context,
    /// Whether the run continues as new after it: its newer rows belong to another execution.
    pub continues_as_new: bool,
    /// The time before which the run does not continue after it, unless it awaits a signal.
    pub waits_until: Option<OffsetDateTime>,
    /// The signal that the run awaits after it.
    pub awaits: Option<AwaitedSignal>,
    /// The messages launched with it whose handlers are waited for by a strategy.
    pub strategies: Vec<LoggedStrategy>,
}

/// A message whose handlers are waited for by a strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedStrategy {
    /// The message.
    pub message: Uuid,
    /// The stored name of the strategy.
    pub name: String,
    /// Its parameters.
    pub with: Value,
    /// When its limit is over, if it has one.
    pub until: Option<OffsetDateTime>,
    /// Until when handlers that subscribe get the message, too.
    pub late_until: Option<OffsetDateTime>,
    /// Whether the handlers that are under way when the run goes on are left to run.
    pub leaves_others: bool,
}

impl LoggedStrategy {
    /// Those of the stored wait of an event.
    ///
    /// ```
    /// use scoop_audit::LoggedStrategy;
    ///
    /// let message = uuid::Uuid::nil();
    /// let wait = serde_json::json!({ "messages": [{ "message": message, "strategy": "at_least", "with": 2 }] });
    /// assert_eq!(LoggedStrategy::read_all(&wait)[0].with, 2);
    /// ```
    pub fn read_all(wait: &Value) -> Vec<Self> {
        let messages = wait.get("messages").and_then(Value::as_array);
        let read = |message: &Value| {
            let time = |field: &str| {
                let time = message.get(field).and_then(Value::as_str);
                time.and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok())
            };
            Some(Self {
                message: message.get("message")?.as_str()?.parse().ok()?,
                name: message.get("strategy")?.as_str()?.to_owned(),
                with: message.get("with").cloned().unwrap_or_default(),
                until: time("until"),
                late_until: time("late_until"),
                leaves_others: message.get("leaves_others").and_then(Value::as_bool).unwrap_or_default(),
            })
        };
        messages.into_iter().flatten().filter_map(read).collect()
    }
}

/// A signal that a run awaits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedSignal {
    /// Its name and key.
    pub to: SignalKey,
    /// The time at which the wait ends without the signal, if there is one.
    pub until: Option<OffsetDateTime>,
}

impl LoggedOutput {
    /// A stored value, if its name is that of an output.
    ///
    /// ```
    /// use scoop_audit::LoggedOutput;
    ///
    /// let output = LoggedOutput::read(uuid::Uuid::nil(), "Output of pay#0000000003", 7.into());
    /// assert_eq!(output.map(|output| (output.step, output.number)), Some(("pay".into(), 3)));
    /// assert_eq!(LoggedOutput::read(uuid::Uuid::nil(), "Receipt", 7.into()), None);
    /// ```
    pub fn read(run: Uuid, name: &str, value: Value) -> Option<Self> {
        let (step, number) = read_output_name(name)?;
        Some(Self { run, step: step.to_owned(), number: number as usize, value })
    }
}

/// A subscription of a handler to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The topic.
    pub topic: String,
    /// The handler.
    pub handler: String,
    /// The beginning of the subscription.
    pub since: OffsetDateTime,
    /// The end of the subscription, if it has ended.
    pub until: Option<OffsetDateTime>,
    /// Whether the handler was retired, which dropped its pending runs.
    pub dropped: bool,
}

/// Whether a history is complete, so that no run has anything left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiescence {
    /// Everything must have ended.
    Yes,
    /// The history is incomplete; missing events may still happen.
    No,
}

/// An effect of user code, noted by that code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The run: the last id of its lineage.
    pub run: Uuid,
    /// The step, by its name in the definition.
    pub step: String,
    /// The code of the step that noted it.
    pub part: EffectKind,
    /// The loop iteration of the step.
    pub iteration: u32,
    /// The place of the note.
    pub place: EffectPlace,
}

/// The code of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EffectKind {
    /// The step itself.
    Step,
    /// Its compensation.
    Compensation,
}

/// The place where an effect was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectPlace {
    /// The transaction of the step: the note exists exactly if the outcome of the step does.
    Transaction,
    /// Any other place, once for each attempt. The note may exist more than once, or although the attempt was
    /// discarded.
    Outside,
}
