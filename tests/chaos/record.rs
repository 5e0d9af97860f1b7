//! The recorded events, hierarchy by hierarchy, as read in the end.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use scoop::{Context, Error, EventKind, Failure, Lineage, Result, SignalKey};
use scoop_audit::{
    AwaitedSignal, BegunStep, EndedRun, FailedRun, Log, LoggedEvent, LoggedExecution, LoggedMessage,
    LoggedOutput, LoggedSignal, LoggedStrategy, Subscription, Tables,
};
use scoop_test_support::postgres::tables;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::types::{Json, time::OffsetDateTime};
use sqlx::{AssertSqlSafe, PgPool, Row};
use uuid::Uuid;

/// How many hierarchies are read at once.
const PART: usize = 2_000;

/// The distance from which the order of two times is certain that were read in two statements.
const TOLERANCE: Duration = Duration::from_secs(1);

/// The content of a message is read with the events that began its handling.
const EVENTS: &str = "
    SELECT e.cooperation_lineage AS lineage, e.message_id, e.type::text AS kind, e.coroutine_name AS handler,
           e.coroutine_identifier AS identifier, e.step, e.next_step, e.child_failure_handler_iteration AS handling,
           e.exception, e.context, e.created_at, CASE WHEN e.wait -> 'signal' IS NULL THEN (e.wait ->> 'until')::timestamptz END AS waits_until,
           e.type = 'SUSPENDED' AND EXISTS (SELECT FROM scoop.execution x WHERE x.run = scoop.run_id(e.cooperation_lineage) AND x.began_at = e.created_at) AS anew,
           e.wait #>> '{signal,name}' AS signal_name, e.wait #>> '{signal,key}' AS signal_key,
           (e.wait ->> 'until')::timestamptz AS awaits_until, coalesce(e.wait, 'null') AS wait,
           m.topic, CASE WHEN e.type = 'SEEN' THEN m.payload END AS payload
    FROM scoop.message_event e LEFT JOIN scoop.message m ON m.id = e.message_id
    WHERE e.cooperation_lineage[1] = ANY($1)
    ORDER BY e.cooperation_lineage[1], {committed} e.created_at, e.id";

/// Commit time of an event's transaction. Its order differs from that of the event times in one case: a
/// cancellation has the time of its request, and counts from its commit.
const COMMITTED: &str = "pg_xact_commit_timestamp(e.xmin),";

/// One event with its message's content.
#[derive(Clone, Debug)]
struct Recorded {
    event: LoggedEvent,
    /// None if the message does not exist.
    topic: Option<String>,
    payload: Option<Value>,
}

/// A whole hierarchy.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    pub(crate) root: Uuid,
    pub(crate) runs: Vec<RunRecord>,
    /// The input of the audit.
    pub(crate) log: Log,
}

/// The ids of all hierarchies, in parts of a size that fits into memory.
pub(crate) async fn hierarchies(pool: &PgPool) -> Result<Vec<Vec<Uuid>>> {
    let roots = "SELECT DISTINCT cooperation_lineage[1] FROM scoop.message_event ORDER BY 1";
    let roots: Vec<Uuid> = sqlx::query_scalar(roots).fetch_all(pool).await?;
    Ok(roots.chunks(PART).map(<[Uuid]>::to_vec).collect())
}

/// All subscriptions with their times.
pub(crate) async fn subscriptions(pool: &PgPool) -> Result<Vec<Subscription>> {
    let subscriptions = "SELECT topic, handler, since, retired_at, dropped_at IS NOT NULL FROM scoop.handler";
    let subscriptions: Vec<(String, String, OffsetDateTime, Option<OffsetDateTime>, bool)> =
        sqlx::query_as(subscriptions).fetch_all(pool).await?;
    let subscription =
        |(topic, handler, since, until, dropped)| Subscription { topic, handler, since, until, dropped };
    Ok(subscriptions.into_iter().map(subscription).collect())
}

/// Whether the server records commit times.
pub(crate) async fn knows_commits(pool: &PgPool) -> Result<bool> {
    let known: String = sqlx::query_scalar("SHOW track_commit_timestamp").fetch_one(pool).await?;
    Ok(known == "on")
}

/// Reads these hierarchies.
pub(crate) async fn read(
    pool: &PgPool,
    roots: &[Uuid],
    subscriptions: &[Subscription],
    beside: &mut Beside,
) -> Result<Vec<Hierarchy>> {
    let events = EVENTS.replace("{committed}", if knows_commits(pool).await? { COMMITTED } else { "" });
    let rows = sqlx::query(AssertSqlSafe(events)).bind(roots).fetch_all(pool).await?;
    let events = rows.iter().map(Recorded::read).collect::<Result<Vec<_>>>()?;
    let by_root = events.chunk_by(|one, next| one.event.lineage.root_id() == next.event.lineage.root_id());
    Ok(by_root.map(|events| Hierarchy::of(events, subscriptions, beside)).collect())
}

/// The rows of the tables beside the events that no hierarchy has been given yet.
#[derive(Default)]
pub(crate) struct Beside {
    /// Those of each hierarchy, whose id is their key.
    signals: HashMap<String, Vec<LoggedSignal>>,
    /// Those of each run.
    outputs: HashMap<Uuid, Vec<LoggedOutput>>,
    begun_steps: HashMap<Uuid, Vec<BegunStep>>,
    executions: HashMap<Uuid, Vec<LoggedExecution>>,
    failed_runs: HashMap<Uuid, FailedRun>,
    /// Those of each hierarchy.
    ended_runs: HashMap<Uuid, Vec<EndedRun>>,
}

impl Beside {
    /// Reads all of them.
    pub(crate) async fn read(pool: &PgPool) -> Result<Self> {
        let Tables { signals, outputs, begun_steps, executions, failed_runs, ended_runs } =
            tables(&mut *pool.acquire().await?, "scoop").await?;
        let failed_runs = failed_runs.into_iter().map(|failed| (failed.run, failed)).collect();
        let mut beside = Self { failed_runs, ..Self::default() };
        for signal in signals {
            beside.signals.entry(signal.to.key.clone()).or_default().push(signal);
        }
        for output in outputs {
            beside.outputs.entry(output.run).or_default().push(output);
        }
        for begun in begun_steps {
            beside.begun_steps.entry(begun.run).or_default().push(begun);
        }
        for execution in executions {
            beside.executions.entry(execution.run).or_default().push(execution);
        }
        for ended in ended_runs {
            beside.ended_runs.entry(ended.lineage.root_id()).or_default().push(ended);
        }
        Ok(beside)
    }

    pub(crate) fn signals(&self) -> usize {
        self.signals.values().map(Vec::len).sum()
    }

    pub(crate) fn begun_steps(&self) -> usize {
        self.begun_steps.values().map(Vec::len).sum()
    }

    pub(crate) fn executions(&self) -> usize {
        self.executions.values().map(Vec::len).sum()
    }

    /// Takes those of a hierarchy with these runs.
    fn take(&mut self, root: Uuid, runs: &[RunRecord]) -> Tables {
        let mut tables = Tables {
            signals: self.signals.remove(&root.to_string()).unwrap_or_default(),
            ended_runs: self.ended_runs.remove(&root).unwrap_or_default(),
            ..Tables::default()
        };
        for run in runs {
            tables.outputs.extend(self.outputs.remove(&run.id).unwrap_or_default());
            tables.begun_steps.extend(self.begun_steps.remove(&run.id).unwrap_or_default());
            tables.executions.extend(self.executions.remove(&run.id).unwrap_or_default());
            tables.failed_runs.extend(self.failed_runs.remove(&run.id));
        }
        tables
    }
}

impl Recorded {
    fn read(row: &PgRow) -> Result<Self> {
        let (kind, lineage): (String, Vec<Uuid>) = (row.try_get("kind")?, row.try_get("lineage")?);
        let exception: Option<Json<Failure>> = row.try_get("exception")?;
        let context: Option<Json<Context>> = row.try_get("context")?;
        let number = |column| -> Result<Option<i32>> { Ok(row.try_get(column)?) };
        let (signal_name, signal_key): (Option<String>, Option<String>) =
            (row.try_get("signal_name")?, row.try_get("signal_key")?);
        let awaits_until: Option<OffsetDateTime> = row.try_get("awaits_until")?;
        let event = LoggedEvent {
            message: row.try_get("message_id")?,
            kind: EventKind::from_name(&kind)
                .ok_or_else(|| Error::msg(format!("an event of the unknown type `{kind}`")))?,
            handler: row.try_get("handler")?,
            identifier: row.try_get("identifier")?,
            step: row.try_get("step")?,
            lineage: Lineage::from_ids(lineage).ok_or_else(|| Error::msg("an event without lineage"))?,
            at: row.try_get("created_at")?,
            exception: exception.map(|Json(failure)| failure),
            next_step: number("next_step")?.map(usize::try_from).transpose()?,
            handler_iteration: number("handling")?.map(u32::try_from).transpose()?,
            context: context.map(|Json(context)| context).unwrap_or_default(),
            continues_as_new: row.try_get("anew")?,
            waits_until: row.try_get("waits_until")?,
            awaits: signal_name
                .zip(signal_key)
                .map(|(name, key)| AwaitedSignal { to: SignalKey { name, key }, until: awaits_until }),
            strategies: LoggedStrategy::read_all(&row.try_get("wait")?),
        };
        let payload: Option<Json<Value>> = row.try_get("payload")?;
        Ok(Self { event, topic: row.try_get("topic")?, payload: payload.map(|Json(payload)| payload) })
    }
}

impl Hierarchy {
    fn of(events: &[Recorded], subscriptions: &[Subscription], beside: &mut Beside) -> Self {
        let (root, runs) = (events[0].event.lineage.root_id(), runs(events));
        let topics: BTreeMap<Uuid, &str> =
            events.iter().filter_map(|row| Some((row.event.message, row.topic.as_deref()?))).collect();
        let message = |(id, topic): (Uuid, &str)| LoggedMessage { id, topic: topic.to_owned() };
        let log = Log {
            messages: topics.into_iter().map(message).collect(),
            events: events.iter().map(|row| row.event.clone()).collect(),
            subscriptions: subscriptions.to_vec(),
            tolerance: TOLERANCE.try_into().unwrap_or_default(),
            tables: Some(beside.take(root, &runs)),
            ..Log::default()
        };
        Self { root, runs, log }
    }
}

impl Hierarchy {
    /// All events, a line each, for people.
    pub(crate) fn story(&self) -> String {
        let line = |event: &LoggedEvent| {
            let LoggedEvent { at, kind, handler, step, lineage, exception, message, identifier, .. } = event;
            let run = lineage.id().simple().to_string()[28..].to_owned();
            let message = message.simple().to_string()[28..].to_owned();
            let worker = identifier.as_deref().map_or("", |name| &name[name.len().saturating_sub(4)..]);
            let (handler, step) = (handler.as_deref().unwrap_or("-"), step.as_deref().unwrap_or("-"));
            let why = exception
                .iter()
                .flat_map(Failure::root_causes)
                .map(|cause| format!(" {}: {}", cause.kind, cause.message));
            format!(
                "    {at} {worker:4} run {run} message {message} {} {handler} {step}{}",
                kind.as_str(),
                why.collect::<String>()
            )
        };
        self.log
            .events
            .iter()
            .enumerate()
            .map(|(row, event)| format!("{:6}{}", row + 1, line(event)))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// The execution of a run, according to its events.
#[derive(Debug)]
pub(crate) struct RunRecord {
    pub(crate) id: Uuid,
    pub(crate) is_root: bool,
    pub(crate) handler: String,
    pub(crate) payload: serde_json::Value,
    /// The completed steps, and the completed parts of a rollback, in order.
    pub(crate) done: Vec<String>,
    pub(crate) end: End,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Unfinished,
    Committed,
    RolledBack,
    NotUndone,
}

/// The runs of a hierarchy.
fn runs(events: &[Recorded]) -> Vec<RunRecord> {
    let begun = events.iter().filter_map(|Recorded { event: seen, payload, .. }| {
        let (Some(handler), Some(payload)) = (&seen.handler, payload) else { return None };
        let all = events.iter().map(|row| &row.event);
        let own: Vec<_> = all
            .filter(|event| event.lineage == seen.lineage && event.handler.as_ref() == Some(handler))
            .collect();
        let suspended = own
            .iter()
            .filter(|event| event.kind == EventKind::Suspended && event.handler_iteration.is_none());
        let done = suspended.filter_map(|event| event.step.clone()).collect();
        Some(RunRecord {
            id: seen.lineage.id(),
            is_root: seen.lineage.ids().len() == 2,
            handler: handler.clone(),
            payload: payload.clone(),
            done,
            end: end_of(&own),
        })
    });
    begun.collect()
}

/// A run that committed may be rolled back later.
fn end_of(events: &[&LoggedEvent]) -> End {
    let mut ends = events.iter().filter_map(|event| match event.kind {
        EventKind::Committed => Some(End::Committed),
        EventKind::RollingBack => Some(End::Unfinished),
        EventKind::RolledBack => Some(End::RolledBack),
        EventKind::RollbackFailed => Some(End::NotUndone),
        _ => None,
    });
    ends.next_back().unwrap_or(End::Unfinished)
}
