//! The events that the engine reports through `tracing`, and its spans ([`spans`]). Every event is declared here, but those
//! of `scoop-embedded`.
//!
//! Alerts are built on them: target, name, level and fields are an interface, listed in `docs/reference/telemetry.md`. A test
//! compares both lists. An event about an outcome follows the commit of that outcome.
//!
//! Failures, reasons, errors and remedies are fields, and not repeated in the message.
//!
//! Texts go through [`text`], which removes what must not be in a log: payloads and passwords. Texts are made only for
//! an interested subscriber.

pub(crate) mod metrics;
mod spans;
mod text;
pub(crate) mod trace;

use std::fmt::Display;

use scoop_core::{BadTraceparent, Escaped, Failure};
use sqlx::postgres::PgDatabaseError;
use tracing::field::display as shown;
use uuid::Uuid;

use crate::Subscribed;
use crate::model::handlers::GoneHandler;
use crate::model::join::RefusedMember;
use crate::model::signal::{ExpiredSignals, LockedDelivery, RefusedDelivery};
pub(crate) use spans::{Code, RunSpan, launch_span, signal_span};
use text::{FailureText, Scrubbed};
pub(crate) use text::{WITHHELD, quotes_data};
#[cfg(feature = "opentelemetry")]
pub use trace::SampledTraces;

/// The fields shared by all events about a run.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) saga: &'a str,
    pub(crate) step: &'a str,
    pub(crate) run: Uuid,
    /// The run of the hierarchy's message that this run is, or descends from.
    pub(crate) root: Uuid,
    pub(crate) hierarchy: Uuid,
    pub(crate) topic: &'a str,
    /// Attempts at this step before this one.
    pub(crate) attempt: u32,
}

impl At<'_> {
    pub(crate) fn is_root(&self) -> bool {
        self.run == self.root
    }
}

#[cfg(test)]
#[derive(Clone, Copy)]
struct Declared {
    target: &'static str,
    name: &'static str,
    level: &'static str,
    fields: &'static [&'static str],
}

/// Declares the events of a target: a function for each, and a list of all. `shared` are fields that each of them has,
/// and `counts` is a metric that the event counts in.
macro_rules! events {
    (
        $list:ident: $target:literal, shared $shared:tt;
        $(
            $(#[doc = $doc:literal])+
            $level:ident $name:literal = $function:ident($($argument:ident: $type:ty),* $(,)?)
                { $($field:ident = $value:expr),* $(,)? } $message:tt $(counts $count:expr;)?
        )*
    ) => {
        $(
            events!(@function $target, $shared, $(#[doc = $doc])+
                $level $name = $function($($argument: $type),*) { $($field = $value),* } $message { $($count)? });
        )*
        #[cfg(test)]
        const $list: &[Declared] = &[$(events!(@declared $target, $shared, $level $name { $($field),* })),*];
    };
    (
        @function $target:literal, { $($shared:ident = $shared_value:expr),* }, $(#[doc = $doc:literal])+
        $level:ident $name:literal = $function:ident($($argument:ident: $type:ty),*)
            { $($field:ident = $value:expr),* } ($($message:tt)+) { $($count:expr)? }
    ) => {
        $(#[doc = $doc])+
        #[allow(unreachable_pub, reason = "scoop-operate reports some of them, too")]
        pub fn $function($($argument: $type),*) {
            tracing::event!(
                name: $name, target: $target, tracing::Level::$level,
                event = $name, $($shared = $shared_value,)* $($field = $value,)* $($message)+
            );
            if tracing::Level::$level <= tracing::Level::INFO {
                metrics::events($target, $name, stringify!($level), 1);
            }
            $($count;)?
        }
    };
    (
        @declared $target:literal, { $($shared:ident = $shared_value:expr),* },
        $level:ident $name:literal { $($field:ident),* }
    ) => {
        Declared {
            target: $target,
            name: $name,
            level: stringify!($level),
            fields: &["event", $(stringify!($shared),)* $(stringify!($field),)* "message"],
        }
    };
}

events! {
    OF_RUNS: "scoop::run", shared {
        saga = at.saga, step = at.step, run = shown(at.run), root = shown(at.root), is_root = at.is_root(),
        hierarchy = shown(at.hierarchy), topic = at.topic, attempt = at.attempt
    };

    /// A root run failed, by a step or a child; the rollback of the hierarchy begins.
    WARN "failed" = failed(at: At<'_>, failure: &Failure) { failure = shown(FailureText(failure)) }
        ("run failed in step `{}`, rolling back", Escaped(at.step)) counts metrics::failures(at.saga, text::code_of(failure), 1);

    /// The same for a child run, whose parent may handle the failure.
    INFO "failed" = failed_below(at: At<'_>, failure: &Failure) { failure = shown(FailureText(failure)) }
        ("run failed in step `{}`, rolling back", Escaped(at.step)) counts metrics::failures(at.saga, text::code_of(failure), 1);

    /// A cancellation took effect.
    INFO "cancelled" = cancelled(at: At<'_>, failure: &Failure) { failure = shown(FailureText(failure)) }
        ("run cancelled, rolling back")

    /// A root run missed a deadline.
    WARN "deadline_missed" = deadline_missed(at: At<'_>, failure: &Failure) { failure = shown(FailureText(failure)) }
        ("deadline missed")
        counts metrics::failures(at.saga, text::code_of(failure), 1);

    /// The same for a child run, whose parent may handle the failure.
    INFO "deadline_missed" = deadline_missed_below(at: At<'_>, failure: &Failure)
        { failure = shown(FailureText(failure)) } ("deadline missed")
        counts metrics::failures(at.saga, text::code_of(failure), 1);

    /// A rollback is complete. `rollback_requested` is whether the parent or a client requested it.
    INFO "rolled_back" = rolled_back(at: At<'_>, failure: &Failure, rollback_requested: bool)
        { failure = shown(FailureText(failure)), rollback_requested = rollback_requested } ("run rolled back")
        counts metrics::rollbacks(at.saga, "complete", 1);

    /// A rollback failed. `again` is whether it had failed before.
    ERROR "rollback_failed" = rollback_failed(at: At<'_>, failure: &Failure, again: bool)
        { failure = shown(FailureText(failure)), again = again, advice = advice_for_rollback(failure) }
        ("rollback failed in `{}`", Escaped(at.step)) counts metrics::rollbacks(at.saga, "failed", 1);

    /// No living program can continue the run.
    ERROR "stuck" = stuck(at: At<'_>, reason: &str)
        { reason = shown(Scrubbed(reason)), advice = START_ONE_THAT_FITS }
        ("run stuck: no living program can continue it")

    /// A living program with another definition of the saga may continue the run.
    INFO "handed_over" = handed_over(at: At<'_>, reason: &str) { reason = shown(Scrubbed(reason)) }
        ("run left to a program with another definition of its saga")

    /// A signal has reached the run that its step cannot read.
    WARN "signal_refused" = signal_refused(at: At<'_>, signal: &str, key: &str, reason: &str)
        { signal = shown(Escaped(signal)), key = shown(Escaped(key)), reason = shown(Scrubbed(reason)) }
        ("signal refused: the run waits for another one")

    /// The step is retried, for the first time.
    INFO "retried" = retried(at: At<'_>, reason: &str, pause: f64, infrastructure: bool)
        { reason = shown(Scrubbed(reason)), pause_seconds = pause, infrastructure = infrastructure }
        ("attempt failed, retrying in {pause:.3} s")
        counts metrics::retries(at.saga, cause_of_retry(infrastructure), 1);

    /// The step is retried, not for the first time.
    DEBUG "retried" = retried_again(at: At<'_>, reason: &str, pause: f64, infrastructure: bool)
        { reason = shown(Scrubbed(reason)), pause_seconds = pause, infrastructure = infrastructure }
        ("attempt failed again, retrying in {pause:.3} s")
        counts metrics::retries(at.saga, cause_of_retry(infrastructure), 1);

    /// Another process has the run, or the step is recorded already: the result of this process is discarded.
    INFO "discarded" = discarded(at: At<'_>) {}
        ("result discarded: the run was taken over, or its step is already recorded")

    /// The answer to a commit was lost. `outcome` is the outcome that the commit would record, if known.
    WARN "outcome_unknown" = outcome_unknown(at: At<'_>, outcome: &str, reason: &str)
        { outcome = outcome, reason = shown(Scrubbed(reason)) }
        ("settlement outcome unknown, reconciling")

    /// A type of errors cannot decode a recorded value of its code, for the first time in this process.
    WARN "failure_unread" = failure_unread(at: At<'_>, code: &str, type_name: &str)
        { code = code, type_name = type_name }
        ("failure `{}` has a value that `{type_name}` cannot decode, so `Failure::find` skips it: let the type decode \
          what other programs wrote", Escaped(code))

    /// The writes of a cleanup could not be committed with the failure after which it ran.
    WARN "cleanup_lost" = cleanup_lost(at: At<'_>, reason: &str) { reason = shown(Scrubbed(reason)) }
        ("cleanup not committed, recording the failure without it")

    /// The context of the run has a malformed trace context.
    DEBUG "trace_refused" = trace_refused(at: At<'_>, error: &BadTraceparent) { error = shown(error) }
        ("malformed trace context left out")

    /// The run waits for its children, or has ended, and leaves this process.
    DEBUG "left" = left(at: At<'_>, ended: bool) { ended = ended } ("run left this worker, ended: {ended}")
}

events! {
    OF_ROWS: "scoop::run", shared { run = shown(run), hierarchy = shown(hierarchy) };

    /// No living program can read the events of a run.
    ERROR "unreadable" = unreadable(hierarchy: Uuid, run: Uuid) { advice = START_ONE_THAT_READS }
        ("run stuck: its record cannot be read")

    /// The database refuses what the claim of a run writes.
    ERROR "refused" = refused(hierarchy: Uuid, run: Uuid, reason: &str) { reason = shown(Scrubbed(reason)), advice = FIND_THE_ROW }
        ("run stuck: the database refuses what its claim writes")

    /// The results of several attempts in a row are unknown.
    ERROR "in_doubt_too_often" = in_doubt_too_often(hierarchy: Uuid, run: Uuid) { advice = FIND_OUT_WHY }
        ("run stuck: the results of several attempts in a row are unknown")

    /// The reason why a run stopped could not be written; reconciliation will release the run.
    WARN "release_failed" = release_failed(hierarchy: Uuid, run: Uuid, error: &sqlx::Error)
        { error = shown(Scrubbed(error)) } ("run release failed, reconciling")
}

events! {
    OF_WORKERS: "scoop::worker", shared { worker = shown(worker) };

    /// The worker of this process has started.
    INFO "started" = started(worker: Uuid, sagas: usize, concurrency: usize)
        { sagas = sagas, concurrency = concurrency } ("worker started, sagas: {sagas}")

    /// The worker of this process has stopped.
    INFO "stopped" = stopped(worker: Uuid) {} ("worker stopped")

    /// Runs wait for a saga that no living program has.
    WARN "saga_missing" = saga_missing(worker: Uuid, saga: &str, topic: &str)
        { saga = saga, topic = topic, advice = START_ONE_THAT_HAS_IT }
        ("runs wait for saga `{}`, which no living program has", Escaped(saga))

    /// A newer program has renamed a saga of this one.
    INFO "saga_renamed" = saga_renamed(worker: Uuid, saga: &str, name: &str) { saga = saga, name = name }
        ("a newer program calls saga `{}` `{}`: its runs under that name are run here, too", Escaped(saga), Escaped(name))

    /// A handler was retired, since the programs of its service do not have it any more.
    INFO "handler_retired" = handler_retired(worker: Uuid, saga: &str, topic: &str, service: &str)
        { saga = saga, topic = topic, service = service }
        ("handler `{}` retired: no program of service `{}` has it any more", Escaped(saga), Escaped(service))

    /// Workers died; their runs are ready again.
    WARN "took_over" = runs_taken_over(worker: Uuid, dead: usize, runs: usize) { dead = dead, runs = runs }
        ("dead workers reaped: {dead}, runs taken over: {runs}")

    /// The database or its connection failed in an operation that the worker retries.
    WARN "operation_failed" = operation_failed(worker: Uuid, operation: &str, error: &sqlx::Error)
        { operation = operation, error = shown(Scrubbed(error)) }
        ("{operation} failed, retrying")

    /// The database refuses a claim of runs of a saga with a limit. The worker claims those of other sagas meanwhile.
    WARN "claim_refused" = claim_refused(worker: Uuid, saga: &str, error: &sqlx::Error)
        { saga = saga, error = shown(Scrubbed(error)) }
        ("claim of runs of saga `{}` refused, retrying", Escaped(saga))

    /// The recorded names of a saga with a limit are too many. Its limit holds for the names that it has in this program.
    WARN "limit_names_left_out" = limit_names_left_out(worker: Uuid, saga: &str, names: usize)
        { saga = saga, names = names }
        ("the limit of saga `{}` has too many recorded names, left out: {names}", Escaped(saga))

    /// A message that waited to be joined was set aside, since no set can hold it.
    ERROR "join_refused" = join_refused(worker: Uuid, member: &RefusedMember)
        { saga = shown(Escaped(&member.saga)), key = shown(Escaped(&member.key)), message_id = shown(member.message),
          reason = shown(Scrubbed(&member.why)), advice = DELETE_THE_ROW }
        ("a message that no set can hold was set aside")

    /// Signals expired: no run awaited them in time.
    WARN "signals_expired" = signals_expired(worker: Uuid, expired: &ExpiredSignals)
        { signal = shown(Escaped(&expired.to.name)), key = shown(Escaped(&expired.to.key)), signals = expired.signals }
        ("signals `{}` expired, no run awaited them in time: {}", Escaped(&expired.to.name), expired.signals)

    /// The database or its connection failed in an operation that other workers will do.
    WARN "operation_abandoned" = operation_abandoned(worker: Uuid, operation: &str, error: &sqlx::Error)
        { operation = operation, error = shown(Scrubbed(error)) }
        ("{operation} failed, left to other workers")

    /// The session that proves that the worker is alive ended; others may take over its runs.
    WARN "session_lost" = session_lost(worker: Uuid) {} ("worker session lost, opening another")

    /// A task of the engine panicked: a mistake in this library, or a row that it cannot handle.
    ERROR "engine_failed" = engine_failed(worker: Uuid) { advice = RESTART_AND_REPORT }
        ("a task of the engine panicked, the engine stops")

    /// The row of the worker is missing although its session lives.
    WARN "worker_unlisted" = worker_unlisted(worker: Uuid) {} ("the worker is not registered, registering again")

    /// There is no row of the subscription of a saga of the worker.
    WARN "saga_unlisted" = saga_unlisted(worker: Uuid, saga: &str) { saga = saga }
        ("saga `{}` is not registered, registering again", Escaped(saga))

    /// The worker has a session again.
    INFO "session_renewed" = session_renewed(worker: Uuid) {} ("worker session renewed")

    /// The answer to a launch was lost.
    WARN "launch_unknown" = launch_unknown(worker: Uuid, error: &sqlx::Error)
        { error = shown(Scrubbed(error)) } ("launch outcome unknown, reconciling")

    /// Runs were freed whose claim answer was lost.
    WARN "reconciled" = reconciled(worker: Uuid, runs: usize) { runs = runs }
        ("runs released whose claim answer was lost: {runs}")

    /// The row of a schedule is missing although this worker follows it.
    WARN "schedule_unlisted" = schedule_unlisted(worker: Uuid, saga: &str) { saga = saga }
        ("schedule of saga `{}` is not registered, registering again", Escaped(saga))

    /// This program does not support the stored schedule of a saga.
    WARN "schedule_unfit" = schedule_unfit(worker: Uuid, saga: &str, error: impl Display)
        { saga = saga, error = shown(Scrubbed(&error)) }
        ("schedule of saga `{}` not followed", Escaped(saga))
}

events! {
    OF_PROGRAMS: "scoop::worker", shared {};

    /// No saga is linked.
    WARN "no_sagas" = no_sagas() {} ("program has no sagas: link the crate that has them, by a `use` at least")

    /// A time of a schedule was skipped, since the previous run had not ended.
    DEBUG "tick_skipped" = tick_skipped(saga: &str) { saga = saga }
        ("tick of saga `{}` skipped: its last run has not ended", Escaped(saga))

    /// Too many times of a schedule were missed for a run of each.
    WARN "missed_skipped" = missed_skipped(saga: &str, since: impl Display, until: impl Display)
        { saga = saga, since = shown(since), until = shown(until) }
        ("missed times of saga `{}` skipped: too many for a run of each", Escaped(saga))

    /// A session was lost before it was closed.
    DEBUG "session_gone" = session_gone(error: &sqlx::Error) { error = shown(Scrubbed(error)) }
        ("worker session gone before it was closed")
}

events! {
    OF_LAUNCHES: "scoop::launch", shared {};

    /// A message was launched on a topic without handlers, for the first time in this process.
    WARN "unhandled" = unhandled(topic: &str, subscribed: &Subscribed)
        { topic = topic, near = shown(Escaped(&subscribed.near.join(", "))) }
        ("message left unhandled: topic `{}` has no handler; {subscribed}", Escaped(topic))

    /// The caller of a launch has named a malformed trace context.
    DEBUG "trace_refused" = header_refused(error: &BadTraceparent) { error = shown(error) }
        ("malformed trace context of a caller left out")
}

events! {
    OF_SIGNALS: "scoop::signal", shared {};

    /// A signal was sent that no saga of a living program awaits, for the first time in this process.
    WARN "unawaited" = unawaited(signal: &str, near: &[String])
        { signal = shown(Escaped(signal)), near = shown(Escaped(&near.join(", "))) }
        ("signal sent that no living program awaits: `{}`", Escaped(signal))

    /// The database refuses to deliver a signal to a run.
    ERROR "delivery_refused" = delivery_refused(refused: &RefusedDelivery)
        { signal = shown(Escaped(&refused.to.name)), key = shown(Escaped(&refused.to.key)),
          saga = shown(Escaped(refused.run.as_ref().map_or("", |run| &run.handler))),
          step = shown(Escaped(refused.run.as_ref().map_or("", |run| &run.step))),
          run = refused.run.as_ref().map(|run| shown(run.id)), error = shown(Scrubbed(&refused.error)),
          advice = CANCEL_OR_REPAIR }
        ("the database refuses to deliver signal `{}`", Escaped(&refused.to.name))

    /// Another session locks a signal, or a run that awaits it, for more than a second.
    WARN "delivery_locked" = delivery_locked(locked: &LockedDelivery)
        { signal = shown(Escaped(&locked.to.name)), key = shown(Escaped(&locked.to.key)),
          error = shown(Scrubbed(&locked.error)), advice = END_THE_LOCK }
        ("signal `{}` is delivered later: it, or a run that awaits it, is locked", Escaped(&locked.to.name))
}

events! {
    OF_RETENTION: "scoop::retention", shared {};

    /// Finished hierarchies, old signals and unique keys were deleted.
    INFO "pruned" = pruned(pruned: &crate::Pruned)
        { hierarchies = pruned.hierarchies, messages = pruned.messages, events = pruned.events, signals = pruned.signals,
          unique_keys = pruned.unique_keys }
        ("{} finished hierarchies and {} signals deleted", pruned.hierarchies, pruned.signals)

    /// The archive failed; its hierarchies are kept until another attempt.
    WARN "unarchived" = unarchived(hierarchies: usize, first: Uuid, error: &(dyn std::error::Error + 'static))
        { hierarchies = hierarchies, first = shown(first), error = shown(Scrubbed(&error)) }
        ("{}, and so not deleted", crate::error::unarchived(hierarchies))

    /// The database refuses to delete hierarchies; these are tried again later. Reported once for each look, and call.
    WARN "undeletable" = undeletable(refused: &crate::model::pruning::RefusedDeletions)
        { hierarchies = refused.count, first = shown(refused.first), topic = refused.topic.as_deref(),
          error = shown(Escaped(&refused.error)), advice = REMOVE_THE_REFERENCE }
        ("the database refuses to delete {} finished hierarchies", refused.count)
}

events! {
    OF_PAUSES: "scoop::pause", shared { paused = shown(&pause.target), source = shown(Escaped(&pause.source)) };

    /// A saga, a topic or everything was paused, or its pause was changed.
    WARN "pause_began" = pause_began(pause: &crate::Pause)
        { reason = shown(Escaped(pause.reason.as_deref().unwrap_or_default())) } ("{} was paused{}", pause.target, pause.kind())

    /// A pause ended: it was resumed, or its time was over.
    INFO "pause_ended" = pause_ended(pause: &crate::Pause, why: &str) { why = why }
        ("the pause of {} ended: {why}", pause.target)
}

const START_ONE_THAT_FITS: &str = "start a program whose saga fits it, or see `operate().failures().stuck` and `operate().failures().retry`";

const START_ONE_THAT_HAS_IT: &str =
    "start a program that has it, or if it was renamed, write `#[saga(was = \"..\")]`";

const RESTART_AND_REPORT: &str = "restart the process, and report the panic as an issue";

const FIND_THE_ROW: &str = "as the owner of the tables, remove the row that contradicts it, such as an event in `message_event`, then `operate().failures().retry`";

const CANCEL_OR_REPAIR: &str =
    "as the owner of the tables, mend the row of the run in `run`, or cancel the run by `Scoop::cancel`";

const END_THE_LOCK: &str = "end the transaction that locks the row: see `pg_locks` and `pg_stat_activity`";

const REMOVE_THE_REFERENCE: &str = "remove what refers to rows of the schema, such as a foreign key or a trigger: see `operate().retention().undeletable`";

const DELETE_THE_ROW: &str = "see `operate().runs().waiting_members`; as the owner of the tables, mend the message and set `refused` of its row in \
    `join_member` to null, or delete the row";

const FIND_OUT_WHY: &str =
    "see the earlier log lines of the workers, fix the cause, then call `operate().failures().retry`";

const START_ONE_THAT_READS: &str =
    "see the reason in `operate().failures().stuck`, and start a program that can read it";

/// A text for tables that operators read: as in the log.
pub(crate) fn scrubbed(text: &dyn Display) -> String {
    Scrubbed(text).to_string()
}

/// Why the server refuses a statement, as in the log: without the line in the source of the server. The detail of a violated
/// foreign key names the key; other details may quote rows.
pub fn refusal(error: &sqlx::Error) -> String {
    const FOREIGN_KEY: &str = "23503";
    let sqlx::Error::Database(database) = error else { return scrubbed(error) };
    let mut text = database.message().to_owned();
    if let Some(constraint) = database.constraint().filter(|name| !text.contains(name)) {
        text += &format!(", by the constraint \"{constraint}\"");
    }
    let postgres = database.try_downcast_ref::<PgDatabaseError>();
    if let Some(detail) = postgres.filter(|it| it.code() == FOREIGN_KEY).and_then(PgDatabaseError::detail) {
        text += &format!(": {}", detail.trim_end_matches('.'));
    }
    scrubbed(&text)
}

/// Reports the handlers that were retired since no living process has them any more.
pub(crate) fn handlers_retired(worker: Uuid, retired: &[GoneHandler]) {
    for GoneHandler { topic, handler, service } in retired {
        handler_retired(worker, handler, topic, service);
    }
}

/// Reports runs that are stuck because the results of several attempts in a row are unknown, with their hierarchies.
pub(crate) fn unknown_too_often(stuck: &[(Uuid, Uuid)]) {
    for (hierarchy, run) in stuck {
        in_doubt_too_often(*hierarchy, *run);
    }
}

const fn cause_of_retry(infrastructure: bool) -> &'static str {
    if infrastructure { "infrastructure" } else { "step" }
}

fn advice_for_rollback(failure: &Failure) -> &'static str {
    match text::comes_from_below(failure) {
        true => "repair the run below whose rollback failed: this one continues after that",
        false => {
            "see `operate().failures().list`, fix the cause, then call `operate().failures().retry`, `operate().failures().skip` or `operate().failures().resolve`"
        }
    }
}

#[cfg(test)]
mod tests;
