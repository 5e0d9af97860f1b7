//! A run in execution, the reasons for which its execution ends, and its registration as in flight.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use scoop_core::{
    AttemptHistory, Context, Continuation, Definition, Failure, Run, TraceContext, Wait, is_signal_wait,
    visible_step,
};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::handover::IfRefused;
use super::outcome::Decision;
use super::shared::Engine;
use super::slots::SlotLease;
use crate::engine::why::Why;
use crate::error::is_of_contents;
use crate::error::sqlstate::decodes_data;
use crate::rehearsal::CommitToken;
use crate::saga::private::Pin;
use crate::saga::registry::RunnableSaga;
use crate::store::{ClaimKey, HierarchyFlags, micros_of};
use crate::telemetry::metrics::TimedStep;
use crate::telemetry::{self, At, RunSpan};
use crate::util::panic_boundary::DropGuarded;

pub(super) struct Execution {
    pub(super) key: ClaimKey,
    pub(super) saga: Arc<RunnableSaga>,
    pub(super) payload: Value,
    pub(super) message: OnceLock<DropGuarded>,
    pub(super) attempts: i32,
    pub(super) retries: u32,
    pub(super) newest_failure: Option<String>,
    pub(super) flags: HierarchyFlags,
    pub(super) began_at: OffsetDateTime,
    /// Whether it may have to give up.
    pub(super) overdue: bool,
    pub(super) run: Run,
    /// The definition under which its newest step completed, as stored.
    pub(super) definition: Option<i32>,
    /// Whether it continues under the definition at hand only, which newer ones have refused.
    pub(super) reserved: bool,
    pub(super) stored_context: Context,
    pub(super) attempt_history: AttemptHistory,
    /// Why it has to give up before the next move, if it has to.
    pub(super) give_up_reasons: Vec<Failure>,
    /// Its failure, if it has begun a step that runs at most once under an earlier claim.
    pub(super) interrupted: Option<Failure>,
    /// The slot, until the run leaves it to its parent.
    pub(super) slot: Option<SlotLease>,
    /// The faults that a rehearsal has let pass.
    pub(super) commit_token: Option<CommitToken>,
    /// The decision whose commit has an unknown result.
    pub(super) undecided: Option<Box<Decision>>,
    pub(super) span: RunSpan,
    /// The span that has sent the signal with which it goes on.
    pub(super) signalled_by: Option<TraceContext>,
    /// The wait, if strategies have to decide before the run continues.
    pub(super) wait: Option<Wait>,
}

impl Execution {
    /// Whether it stays with the definition of its newest step. Any one may begin an execution, or undo it.
    pub(super) fn is_pinned(&self) -> bool {
        self.saga.handler.pin() != Pin::None && self.run.last.is_some() && !self.run.is_backward()
    }

    /// Whether to hand it back: this worker stops, another one has a newer definition, or the saga is paused.
    pub(super) fn is_left(&self, engine: &Engine) -> bool {
        let Definition { topic, saga, .. } = &self.saga.definition;
        let superseded = !self.reserved && !self.is_pinned() && engine.topology.is_superseded(topic, saga);
        let paused = engine.topology.is_paused(topic, saga);
        superseded || paused || engine.stopping.is_cancelled()
    }
}

impl Execution {
    /// Begins an execution with this message, after the SUSPENDED of this time. It is a trace of its own: that of an endless
    /// run would have no end.
    pub(super) fn begin_execution(&mut self, payload: Value, after: OffsetDateTime) {
        self.span.ends_as("continued_as_new");
        self.span = self.span.followed_by(self.at(""));
        self.span.continues_in(&mut self.run.context);
        (self.payload, self.message) = (payload, OnceLock::new());
        self.run.execution.after = Some(micros_of(after));
        // Any definition may have the new execution.
        self.reserved = false;
    }
}

impl Execution {
    /// The fields of its events, for this step or part of the rollback.
    pub(super) fn at<'a>(&'a self, step: &'a str) -> At<'a> {
        At { step: visible_step(step), attempt: self.attempt(), ..at(&self.saga, self.key, &self.run) }
    }

    /// The measurement of the code of a step.
    pub(super) fn timed(&self, step: usize) -> TimedStep<'_> {
        let RunnableSaga { definition, times, .. } = &*self.saga;
        TimedStep { definition, times, step }
    }

    /// Reports that the run is left to a program with another definition.
    pub(super) fn handed_over(&self, step: &str, why: &Why) {
        self.span.ends_as("handed_over");
        telemetry::handed_over(self.at(step), why.logged());
    }

    /// The span that has sent the signal with which the next step goes on, if it goes on with one.
    pub(super) fn sender(&self) -> Option<&TraceContext> {
        let last = self.run.last.as_ref().filter(|_| !self.run.is_backward())?;
        self.signalled_by.as_ref().filter(|_| is_signal_wait(&last.step))
    }

    pub(super) fn waited_last_in(&self, steps: &[String]) -> bool {
        self.run.last.as_ref().is_some_and(|last| !self.run.is_backward() && steps.contains(&last.step))
    }

    /// Failed attempts at the next code.
    pub(super) fn attempt(&self) -> u32 {
        u32::try_from(self.attempts).unwrap_or(0) + self.retries
    }

    /// The next step or part of the rollback; the newest recorded one if the next one is unknown.
    pub(super) fn step(&self) -> String {
        match next(self) {
            Ok(Continuation::Call(call)) => call.step().to_owned(),
            Ok(Continuation::Record(_)) | Err(_) => {
                self.run.last.as_ref().map_or_else(String::new, |last| last.step.clone())
            }
        }
    }
}

/// The fields of the events of a run, without a step.
pub(super) fn at<'a>(saga: &'a RunnableSaga, key: ClaimKey, run: &Run) -> At<'a> {
    At {
        saga: &saga.definition.saga,
        step: "",
        run: key.id,
        // The first id is that of the hierarchy.
        root: run.lineage.ids().get(1).copied().unwrap_or(key.id),
        hierarchy: key.root,
        topic: &saga.definition.topic,
        attempt: 0,
    }
}

/// Why the execution of a run ends.
pub(super) enum Exit {
    /// It waits for children, or has ended.
    Settled,
    /// Infrastructure failure (database or connection): retry after a backoff.
    Infrastructure(Why),
    /// The step failed and is retried after this pause.
    Retry { why: Why, pause: Duration },
    /// No definition at hand can continue it.
    Stuck(Why),
    /// It stays with this definition, under which it began.
    Pinned { definition: i32, otherwise: IfRefused },
    /// It has a reply that this program cannot decode as a value of this type.
    UnfitReply { why: Why, reply_type: String },
    /// Its step cannot read the signal that came: it waits for another one.
    SignalRefused(Why),
    /// The result of the last commit is unknown.
    InDoubt(String),
    /// Another worker has taken it over.
    TakenOver,
    /// Its code was stopped, since the engine stops and does not wait for it any longer.
    Abandoned,
}

/// Registers a run as in flight in this process until dropped.
pub(super) struct InFlightGuard {
    pub(super) engine: Arc<Engine>,
    key: ClaimKey,
}

const EPOCH_UNKNOWN: i64 = i64::MIN;

impl InFlightGuard {
    pub(super) fn begin(engine: Arc<Engine>, key: ClaimKey) -> Self {
        engine.in_flight().insert((key.id, key.epoch));
        Self { engine, key }
    }

    /// For a run that may be claimed now, under an epoch that is not known yet. Only one at a time may expect the same
    /// run.
    pub(super) fn begin_at_unknown_epoch(engine: Arc<Engine>, root: Uuid, id: Uuid) -> Self {
        Self::begin(engine, ClaimKey { root, id, epoch: EPOCH_UNKNOWN })
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        // The same run may be in flight under a later claim, which stays.
        self.engine.in_flight().remove(&(self.key.id, self.key.epoch));
        if std::thread::panicking() {
            self.engine.mark_in_doubt();
        }
    }
}

/// Why the run has to give up, if it has to.
pub(super) async fn reasons_to_give_up(engine: &Engine, execution: &Execution) -> Result<Vec<Failure>, Exit> {
    let asked = engine.store.give_up_reasons(execution.key).await;
    let asked = asked.map_err(|error| unread("whether it is to give up could not be read", &error))?;
    Ok(asked.map_or_else(Vec::new, |asked| asked.failures(&execution.run, execution.flags)))
}

/// The database failed; or the record differs from the expected one, and only another program may be able to read it.
pub(super) fn unread(what: &str, error: &sqlx::Error) -> Exit {
    let logged = decodes_data(error).then(|| format!("{what}: {}", telemetry::WITHHELD));
    let why = Why { recorded: format!("{what}: {error}"), logged };
    if is_of_contents(error) { Exit::Stuck(why) } else { Exit::Infrastructure(why) }
}

/// The next move of this run by the protocol.
pub(super) fn next(execution: &Execution) -> Result<Continuation<'_>, Exit> {
    Continuation::of(&execution.saga.definition, &execution.run)
        .map_err(|stuck| Exit::Stuck(stuck.to_string().into()))
}
