//! The verdict of the protocol's reference model on all recorded events.

use scoop::__private::{Registration, inventory};
use scoop::{Definition, EventKind, Failure, Lineage, SignalKey};
use scoop_audit::{
    AwaitedSignal, BegunStep, EndedRun, FailedRun, Log, LoggedEvent, LoggedExecution, LoggedMessage,
    LoggedOutput, LoggedSignal, LoggedStrategy, Quiescence, Redelivery, RunOutcome, Subscription, Tables,
    audit,
};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

const EVENTS: &str = "
    SELECT message_id, type::text, coroutine_name, coroutine_identifier, step, next_step,
           child_failure_handler_iteration, cooperation_lineage, exception, coalesce(context, '{}'), created_at,
           CASE WHEN wait -> 'signal' IS NULL THEN (wait ->> 'until')::timestamptz END,
           type = 'SUSPENDED' AND EXISTS (SELECT FROM {schema}.execution x
                   WHERE x.run = {schema}.run_id(e.cooperation_lineage) AND x.began_at = e.created_at),
           wait #>> '{signal,name}', wait #>> '{signal,key}', (wait ->> 'until')::timestamptz, coalesce(wait, 'null')
    FROM {schema}.message_event e
    ORDER BY created_at, id";

const MESSAGES: &str = "SELECT id, topic FROM {schema}.message";

const SUBSCRIPTIONS: &str =
    "SELECT topic, handler, since, retired_at, dropped_at IS NOT NULL FROM {schema}.handler";

const REPAIRED: &str = "SELECT DISTINCT run FROM {schema}.intervention";

const SET_ASIDE: &str = "SELECT id FROM {schema}.run WHERE state = 'stuck'";

const REDELIVERIES: &str = "SELECT message_id, redelivered_at FROM {schema}.redelivery WHERE copy IS NULL";

const SIGNALS: &str =
    "SELECT id, name, key, payload, sent_at, kept_until, delivered_at, reached FROM {schema}.signal";

const OUTPUTS: &str = "
    SELECT {schema}.run_id(cooperation_lineage), variable_name, value FROM {schema}.return_value
    WHERE variable_name LIKE 'Output of %'";

const BEGUN_STEPS: &str = "SELECT run, step, instance, begun_at FROM {schema}.begun_step";

const EXECUTIONS: &str = "SELECT run, number, began_at FROM {schema}.execution";

const FAILED_RUNS: &str = "SELECT id, state = 'failed', parent FROM {schema}.run WHERE rollback_failure IS NOT NULL AND state <> 'ended'";

const ENDED_RUNS: &str = "
    SELECT lineage, message_id, handler, outcome::text, failure, rollback_failure, coalesce(context, '{}'), ended_at
    FROM {schema}.ended_run";

/// Whether a run is unfinished, apart from stuck ones and those that wait for them.
const UNFINISHED: &str = "
    SELECT EXISTS (SELECT FROM {schema}.run r WHERE state NOT IN ('stuck', 'failed', 'waiting')
        OR state = 'waiting' AND NOT EXISTS (
            SELECT FROM {schema}.run below WHERE below.root = r.root AND below.state = 'stuck'))";

/// Fails if the log is not one that may be, at this moment.
pub(crate) async fn judge(pool: &PgPool, schema: &str) {
    let mut tx = pool.begin().await.expect("a connection");
    sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        .execute(&mut *tx)
        .await
        .expect("a snapshot");
    let (log, at_rest) = read(&mut tx, schema).await.expect("the log can be read");
    tx.rollback().await.expect("nothing was written");
    let definitions: Vec<Definition> =
        inventory::iter::<Registration>().map(Registration::definition).collect();
    let wrong: Vec<_> = audit(&log, &definitions, at_rest).iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}\nin\n{}", wrong.join("\n"), table(&log));
}

/// The rows, numbered as violations name them.
fn table(log: &Log) -> String {
    let line = |(at, row): (usize, &LoggedEvent)| {
        let (handler, step) = (row.handler.as_deref().unwrap_or("·"), row.step.as_deref().unwrap_or("·"));
        format!("{:>4}  {} {handler} {step} {}\n", at + 1, row.kind.as_str(), row.lineage)
    };
    log.events.iter().enumerate().map(line).collect()
}

async fn read(tx: &mut PgConnection, schema: &str) -> sqlx::Result<(Log, Quiescence)> {
    let sql = |text: &str| AssertSqlSafe(text.replace("{schema}", schema));
    let events = sqlx::query(sql(EVENTS)).try_map(|row| event(&row)).fetch_all(&mut *tx).await?;
    let message = |row: PgRow| Ok(LoggedMessage { id: row.try_get(0)?, topic: row.try_get(1)? });
    let messages = sqlx::query(sql(MESSAGES)).try_map(message).fetch_all(&mut *tx).await?;
    let subscriptions =
        sqlx::query(sql(SUBSCRIPTIONS)).try_map(|row| subscription(&row)).fetch_all(&mut *tx).await?;
    let repaired = sqlx::query_scalar(sql(REPAIRED)).fetch_all(&mut *tx).await?;
    let set_aside = sqlx::query_scalar(sql(SET_ASIDE)).fetch_all(&mut *tx).await?;
    let unfinished: bool = sqlx::query_scalar(sql(UNFINISHED)).fetch_one(&mut *tx).await?;
    // A subscription is committed some time after the time that stands in it.
    let tolerance = Duration::seconds(2);
    let redeliveries = sqlx::query(sql(REDELIVERIES)).try_map(|row| redelivery(&row));
    let redeliveries = redeliveries.fetch_all(&mut *tx).await?;
    let tables = Some(tables(tx, schema).await?);
    let log = Log { messages, events, subscriptions, tolerance, repaired, set_aside, redeliveries, tables };
    Ok((log, if unfinished { Quiescence::No } else { Quiescence::Yes }))
}

/// The rows of the tables beside the event log, as the reference model reads them.
///
/// # Errors
///
/// If they cannot be read.
pub async fn tables(tx: &mut PgConnection, schema: &str) -> sqlx::Result<Tables> {
    let sql = |text: &str| AssertSqlSafe(text.replace("{schema}", schema));
    let signal = |row: PgRow| {
        let (Json(payload), reached) = (row.try_get(3)?, row.try_get::<i32, _>(7)?);
        Ok(LoggedSignal {
            id: row.try_get(0)?,
            to: SignalKey { name: row.try_get(1)?, key: row.try_get(2)? },
            payload,
            sent_at: row.try_get(4)?,
            kept_until: row.try_get(5)?,
            delivered_at: row.try_get(6)?,
            reached: reached.unsigned_abs().into(),
        })
    };
    let number =
        |row: &PgRow, column| Ok::<_, sqlx::Error>(row.try_get::<i32, _>(column)?.unsigned_abs() as usize);
    let output = |row: PgRow| {
        let (name, Json(value)) = (row.try_get::<String, _>(1)?, row.try_get(2)?);
        Ok(LoggedOutput::read(row.try_get(0)?, &name, value))
    };
    let begun = |row: PgRow| {
        let number = number(&row, 2)?;
        Ok(BegunStep { run: row.try_get(0)?, step: row.try_get(1)?, number, at: row.try_get(3)? })
    };
    let execution = |row: PgRow| {
        let number = number(&row, 1)?;
        Ok(LoggedExecution { run: row.try_get(0)?, number, began_at: row.try_get(2)? })
    };
    let failed =
        |row: PgRow| Ok(FailedRun { run: row.try_get(0)?, rests: row.try_get(1)?, parent: row.try_get(2)? });
    let outputs: Vec<_> = sqlx::query(sql(OUTPUTS)).try_map(output).fetch_all(&mut *tx).await?;
    Ok(Tables {
        signals: sqlx::query(sql(SIGNALS)).try_map(signal).fetch_all(&mut *tx).await?,
        outputs: outputs.into_iter().flatten().collect(),
        begun_steps: sqlx::query(sql(BEGUN_STEPS)).try_map(begun).fetch_all(&mut *tx).await?,
        executions: sqlx::query(sql(EXECUTIONS)).try_map(execution).fetch_all(&mut *tx).await?,
        failed_runs: sqlx::query(sql(FAILED_RUNS)).try_map(failed).fetch_all(&mut *tx).await?,
        ended_runs: sqlx::query(sql(ENDED_RUNS)).try_map(|row| ended_run(&row)).fetch_all(&mut *tx).await?,
    })
}

fn ended_run(row: &PgRow) -> sqlx::Result<EndedRun> {
    let failure = |column| {
        let stored: Option<Json<Failure>> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(stored.map(|Json(failure)| failure))
    };
    let outcome = match row.try_get::<&str, _>(3)? {
        "committed" => RunOutcome::Committed,
        "rolled_back" => RunOutcome::RolledBack,
        "dropped" => RunOutcome::Dropped,
        other => panic!("an unknown outcome `{other}`"),
    };
    Ok(EndedRun {
        lineage: Lineage::from_ids(row.try_get(0)?).expect("a lineage"),
        message: row.try_get(1)?,
        handler: row.try_get(2)?,
        outcome,
        failure: failure(4)?,
        rollback_failure: failure(5)?,
        context: row.try_get::<Json<_>, _>(6)?.0,
        ended_at: row.try_get(7)?,
    })
}

fn awaited(row: &PgRow) -> sqlx::Result<Option<AwaitedSignal>> {
    let (name, key): (Option<String>, Option<String>) = (row.try_get(13)?, row.try_get(14)?);
    let until = row.try_get(15)?;
    Ok(name.zip(key).map(|(name, key)| AwaitedSignal { to: SignalKey { name, key }, until }))
}

fn event(row: &PgRow) -> sqlx::Result<LoggedEvent> {
    let kind: String = row.try_get(1)?;
    let lineage: Vec<Uuid> = row.try_get(7)?;
    let exception: Option<Json<Failure>> = row.try_get(8)?;
    let count = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<i32>, _>(column)?.map(i32::cast_unsigned));
    Ok(LoggedEvent {
        message: row.try_get(0)?,
        kind: EventKind::from_name(&kind).expect("a kind of event"),
        handler: row.try_get(2)?,
        identifier: row.try_get(3)?,
        step: row.try_get(4)?,
        lineage: Lineage::from_ids(lineage).expect("a lineage"),
        at: row.try_get::<OffsetDateTime, _>(10)?,
        exception: exception.map(|Json(failure)| failure),
        next_step: count(5)?.map(|next| next as usize),
        handler_iteration: count(6)?,
        context: row.try_get::<Json<_>, _>(9)?.0,
        waits_until: row.try_get(11)?,
        continues_as_new: row.try_get(12)?,
        awaits: awaited(row)?,
        strategies: LoggedStrategy::read_all(&row.try_get(16)?),
    })
}

fn redelivery(row: &PgRow) -> sqlx::Result<Redelivery> {
    Ok(Redelivery { message: row.try_get(0)?, at: row.try_get(1)? })
}

fn subscription(row: &PgRow) -> sqlx::Result<Subscription> {
    Ok(Subscription {
        topic: row.try_get(0)?,
        handler: row.try_get(1)?,
        since: row.try_get(2)?,
        until: row.try_get(3)?,
        dropped: row.try_get(4)?,
    })
}
