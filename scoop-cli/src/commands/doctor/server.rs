//! Checks of the server and of the tables, by its catalogs.

use std::time::{Duration, Instant, SystemTime};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::{Finding, Level};
use crate::fault::Fault;
use crate::times::in_words;

/// The share of connections in use from which on it is a warning, in percent.
const CONNECTIONS_MAX_PERCENT: i64 = 85;

/// The difference of clocks that is a warning: schedules and deadlines are late or early by it.
const CLOCK_WARNING: Duration = Duration::from_secs(1);

/// The difference that is a problem: followers of events may miss those of a program that is so far behind.
const CLOCK_PROBLEM: Duration = Duration::from_secs(60);

/// The number of removed rows from which on a table is looked at.
const DEAD_MIN: i64 = 50_000;

/// The number of transactions since the last freezing, of about two billion, that is a problem.
const XID_AGE_MAX: i64 = 1_500_000_000;

/// The mean time of a statement that is slow, in milliseconds.
const SLOW_MS: f64 = 100.0;

/// Whether a statement may be prepared, which a proxy that assigns connections per transaction does not support.
#[derive(Clone, Copy)]
struct Reader<'a> {
    pool: &'a PgPool,
    persistent: bool,
}

/// Checks the settings, the connections, the clock and the open transactions.
pub(super) async fn check(
    pool: &PgPool,
    is_behind_proxy: bool,
    open_for: Duration,
) -> Result<Vec<Finding>, Fault> {
    let reader = Reader { pool, persistent: !is_behind_proxy };
    // The first query opens the connection, which would count as time on the way.
    pool.acquire().await.map_err(Fault::sql("the server was asked for its settings"))?;
    let asked = (Instant::now(), SystemTime::now());
    let query = sqlx::query(include_str!("../../../sql/settings.sql")).persistent(reader.persistent);
    let row = query.fetch_one(pool).await.map_err(Fault::sql("the server was asked for its settings"))?;
    let mut findings = settings(&row).map_err(Fault::sql("the settings of the server were read"))?;
    let now: i64 = row.try_get("now_ms").map_err(Fault::sql("the clock of the server was read"))?;
    findings.push(clock(now, asked));
    findings.extend(transactions(reader, open_for).await?);
    Ok(findings)
}

fn settings(row: &PgRow) -> sqlx::Result<Vec<Finding>> {
    use Level::{Problem, Warning};
    let mut findings = vec![];
    let mut check = |is_bad: bool, finding: Finding, good: String| {
        findings.push(if is_bad { finding } else { Finding::good(finding.check, good) });
    };
    let (version, number): (String, i32) = (row.try_get("version")?, row.try_get("version_num")?);
    check(
        number < 15_00_00,
        Finding::bad(
            Problem,
            "version",
            format!("the server is PostgreSQL {version}"),
            "update it to 15 or later",
        ),
        format!("PostgreSQL {version}"),
    );
    check(
        row.try_get("in_recovery")?,
        Finding::bad(
            Problem,
            "standby",
            "the server is a standby, which only reads",
            "connect to the primary server",
        ),
        "the server is no standby".into(),
    );
    check(
        !row.try_get("autovacuum")?,
        Finding::bad(
            Problem,
            "autovacuum",
            "autovacuum or track_counts is off, so tables and indexes grow without a limit",
            "set both to on",
        ),
        "autovacuum is on".into(),
    );
    let durable = row.try_get("fsync")? && row.try_get("full_page_writes")?;
    check(
        !durable,
        Finding::bad(
            Problem,
            "durability",
            "fsync or full_page_writes is off: a power cut can destroy the database",
            "set both to on, unless the data may be lost",
        ),
        "fsync and full_page_writes are on".into(),
    );
    let synchronous: String = row.try_get("synchronous_commit")?;
    check(
        synchronous == "off",
        Finding::bad(
            Warning,
            "synchronous_commit",
            "synchronous_commit is off for this role: a crash of the server takes back the last commits, whose outcome \
             programs have used already",
            "set it to on for the roles of programs",
        ),
        format!("synchronous_commit = {synchronous}"),
    );
    let limit: i64 = row.try_get("statement_timeout_ms")?;
    check(
        limit > 0,
        Finding::bad(
            Warning,
            "statement_timeout",
            format!(
                "statement_timeout is {limit} ms for this role: a step whose statement takes longer fails"
            ),
            "use `#[step(timeout = ..)]` for steps; the engine sets it off for its own connections",
        ),
        "statement_timeout is off".into(),
    );
    let limit: i64 = row.try_get("idle_timeout_ms")?;
    check(
        (1..60_000).contains(&limit),
        Finding::bad(
            Warning,
            "idle_in_transaction_session_timeout",
            format!(
                "idle_in_transaction_session_timeout is {limit} ms for this role: a step that opens its transaction and \
                 works longer without a statement begins anew"
            ),
            "raise it above the duration of the longest step",
        ),
        "no short idle_in_transaction_session_timeout".into(),
    );
    let interval: i64 = row.try_get("check_interval_ms")?;
    check(
        interval == 0,
        Finding::bad(
            Level::Note,
            "client_connection_check_interval",
            "client_connection_check_interval is 0: a statement of a program that has died runs to its end and keeps its \
             locks until then",
            "set it to some seconds, such as 10s",
        ),
        format!("client_connection_check_interval = {interval} ms"),
    );
    let (used, max): (i64, i32) = (row.try_get("connections")?, row.try_get("connections_max")?);
    check(
        used * 100 > i64::from(max) * CONNECTIONS_MAX_PERCENT,
        Finding::bad(
            Warning,
            "connections",
            format!("{used} of {max} connections are in use"),
            "raise max_connections, lower the pools of the programs, or use a proxy",
        ),
        format!("{used} of {max} connections are in use"),
    );
    check(
        !row.try_get::<bool, _>("sees_all_sessions")?,
        Finding::bad(
            Level::Note,
            "sessions",
            "the role of this connection sees the transactions of its own sessions only",
            "GRANT pg_read_all_stats to it, to have those of others checked",
        ),
        "the role of this connection sees all sessions".into(),
    );
    let age: i64 = row.try_get("xid_age")?;
    check(
        age > XID_AGE_MAX,
        Finding::bad(
            Problem,
            "wraparound",
            format!(
                "the oldest row was frozen {age} transactions ago; the server stops at about two billion"
            ),
            "end old transactions and replication slots, and run VACUUM in this database",
        ),
        format!("the oldest row was frozen {age} transactions ago"),
    );
    Ok(findings)
}

/// Compares the clock of the server with that of this machine.
fn clock(server_ms: i64, (begun, asked): (Instant, SystemTime)) -> Finding {
    let way = begun.elapsed();
    let here = asked.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + way / 2;
    let server = Duration::from_millis(u64::try_from(server_ms).unwrap_or(0));
    // What may be the time of the way is no difference.
    let apart = server.abs_diff(here).saturating_sub(way / 2);
    let text = format!("the clocks of the server and of this machine are {} apart", in_words(apart));
    let advice = "synchronize both, such as by NTP; deadlines and schedules follow the clock of the server";
    match apart {
        apart if apart > CLOCK_PROBLEM => Finding::bad(Level::Problem, "clock", text, advice),
        apart if apart > CLOCK_WARNING => Finding::bad(Level::Warning, "clock", text, advice),
        _ => Finding::good("clock", "the clocks of the server and of this machine agree"),
    }
}

/// Looks for what keeps a vacuum from removing rows.
async fn transactions(reader: Reader<'_>, open_for: Duration) -> Result<Vec<Finding>, Fault> {
    const DOING: &str = "open transactions were looked up";
    let limit = i64::try_from(open_for.as_millis()).unwrap_or(i64::MAX);
    let query = sqlx::query(include_str!("../../../sql/transactions.sql")).persistent(reader.persistent);
    let rows = query.bind(limit).fetch_all(reader.pool).await.map_err(Fault::sql(DOING))?;
    let read = |row: &PgRow| -> sqlx::Result<Finding> {
        let (kind, name): (String, String) = (row.try_get("kind")?, row.try_get("name")?);
        let age: Option<i64> = row.try_get("age_ms")?;
        let age = in_words(Duration::from_millis(age.and_then(|age| u64::try_from(age).ok()).unwrap_or(0)));
        Ok(match &*kind {
            "session" => {
                let (application, state): (String, String) =
                    (row.try_get("application")?, row.try_get("state")?);
                Finding::bad(
                    Level::Warning,
                    "transactions",
                    format!(
                        "session {name} of `{application}` ({state}) has a transaction open for {age}, which holds back vacuum"
                    ),
                    format!("end it in its program; if that is gone: SELECT pg_terminate_backend({name})"),
                )
            }
            "prepared" => Finding::bad(
                Level::Warning,
                "transactions",
                format!("the prepared transaction {name} is open for {age}, which holds back vacuum"),
                "commit or roll it back: COMMIT PREPARED, ROLLBACK PREPARED",
            ),
            _ => Finding::bad(
                Level::Warning,
                "transactions",
                format!(
                    "the replication slot {name} has no receiver; the server keeps its log, and perhaps rows, for it"
                ),
                "start the receiver, or drop the slot: pg_drop_replication_slot",
            ),
        })
    };
    let found = rows.iter().map(read).collect::<sqlx::Result<Vec<_>>>().map_err(Fault::sql(DOING))?;
    if found.is_empty() {
        return Ok(vec![Finding::good("transactions", "nothing holds back vacuum for long")]);
    }
    Ok(found)
}

/// Looks for slow statements, if the server has statistics of them.
pub(super) async fn statements(pool: &PgPool, schema: &str) -> Result<Vec<Finding>, Fault> {
    const DOING: &str = "the statistics of statements were looked up";
    const CHECK: &str = "slow statements";
    let query = sqlx::query_scalar(include_str!("../../../sql/statistics.sql")).persistent(false);
    let extension: Option<String> = query.fetch_optional(pool).await.map_err(Fault::sql(DOING))?;
    let absent = |text: String, advice: &str| vec![Finding::bad(Level::Note, CHECK, text, advice)];
    let Some(extension) = extension else {
        return Ok(absent(
            "the extension pg_stat_statements is not installed in this database, so slow statements are not known".into(),
            "add it to shared_preload_libraries, and CREATE EXTENSION pg_stat_statements",
        ));
    };
    let quoted = format!("\"{}\"", extension.replace('"', "\"\""));
    let text = include_str!("../../../sql/slow.sql").replace("{schema}", &quoted);
    let query = sqlx::query(AssertSqlSafe(text)).persistent(false).bind(schema).bind(SLOW_MS);
    let rows = match query.fetch_all(pool).await {
        Ok(rows) => rows,
        // It is installed, but not loaded, or the role may not read it.
        Err(sqlx::Error::Database(error)) => {
            let text = format!("the statistics of statements cannot be read: {error}");
            return Ok(absent(
                text,
                "add pg_stat_statements to shared_preload_libraries, and grant pg_read_all_stats",
            ));
        }
        Err(error) => return Err(Fault::sql(DOING)(error)),
    };
    let read = |row: &PgRow| -> sqlx::Result<Finding> {
        let (text, calls, mean): (String, i64, f64) =
            (row.try_get("text")?, row.try_get("calls")?, row.try_get("mean_ms")?);
        Ok(Finding::bad(
            Level::Warning,
            CHECK,
            format!("a statement took {mean:.0} ms on average, in {calls} calls: {text}"),
            "look for bloat, a slow disk and waits for locks; EXPLAIN (ANALYZE, BUFFERS) shows which",
        ))
    };
    if rows.is_empty() {
        return Ok(vec![Finding::good(CHECK, format!("no statement takes {SLOW_MS} ms or more on average"))]);
    }
    rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(Fault::sql(DOING))
}

/// Looks for tables with many removed rows.
pub(super) async fn tables(pool: &PgPool, schema: &str) -> Result<Vec<Finding>, Fault> {
    const DOING: &str = "the sizes of the tables were looked up";
    let query = sqlx::query(include_str!("../../../sql/tables.sql")).persistent(false);
    let rows = query.bind(schema).fetch_all(pool).await.map_err(Fault::sql(DOING))?;
    let (mut findings, mut bytes) = (vec![], 0);
    for row in &rows {
        let read = || -> sqlx::Result<(String, i64, i64, i64, Option<i64>)> {
            let vacuumed = row.try_get("vacuumed_ms_ago")?;
            Ok((
                row.try_get("name")?,
                row.try_get("live")?,
                row.try_get("dead")?,
                row.try_get("bytes")?,
                vacuumed,
            ))
        };
        let (name, live, dead, size, vacuumed) = read().map_err(Fault::sql(DOING))?;
        bytes += size;
        // The working set is small, and most of its rows are short-lived: the vacuum of the server follows at 2 %.
        let allowed = if name == "run" { 10 * live } else { live / 2 };
        if dead > DEAD_MIN.max(allowed) {
            let vacuumed = vacuumed
                .and_then(|ago| u64::try_from(ago).ok())
                .map_or("never".into(), |ago| format!("{} ago", in_words(Duration::from_millis(ago))));
            findings.push(Finding::bad(
                Level::Warning,
                "bloat",
                format!("table `{name}` has {dead} removed rows beside {live}; its last vacuum was {vacuumed}"),
                format!("look for old transactions, and run VACUUM {}.{name}; if it comes back, let autovacuum run more often", identifier(schema)),
            ));
        }
    }
    if findings.is_empty() {
        let text =
            format!("{} tables with {} MB in all, without many removed rows", rows.len(), bytes / 1_000_000);
        findings.push(Finding::good("bloat", text));
    }
    Ok(findings)
}

/// A name as an identifier of SQL.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
