//! Checks of the server and of the tables, by its catalogs.

use std::time::{Duration, Instant, SystemTime};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::{Advice, Finding, Level};
use crate::fault::Fault;
use crate::times::in_words;

/// The oldest version of the server that the tables work on.
const VERSION_MIN: i32 = 15_00_00;

/// The maximum number of applications that are named.
const APPLICATIONS_MAX: usize = 5;

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

/// Settings of the server for this session, and its state.
#[derive(Clone, Debug)]
struct Server {
    version: String,
    version_number: i32,
    in_recovery: bool,
    autovacuum: bool,
    /// Whether a power cut takes back no commit.
    is_durable: bool,
    synchronous_commit: String,
    statement_timeout_ms: i64,
    idle_timeout_ms: i64,
    check_interval_ms: i64,
    connections: i64,
    connections_max: i32,
    sees_all_sessions: bool,
    xid_age: i64,
    /// Its clock, since 1970.
    now_ms: i64,
}

impl Server {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            version: row.try_get("version")?,
            version_number: row.try_get("version_num")?,
            in_recovery: row.try_get("in_recovery")?,
            autovacuum: row.try_get("autovacuum")?,
            is_durable: row.try_get("fsync")? && row.try_get("full_page_writes")?,
            synchronous_commit: row.try_get("synchronous_commit")?,
            statement_timeout_ms: row.try_get("statement_timeout_ms")?,
            idle_timeout_ms: row.try_get("idle_timeout_ms")?,
            check_interval_ms: row.try_get("check_interval_ms")?,
            connections: row.try_get("connections")?,
            connections_max: row.try_get("connections_max")?,
            sees_all_sessions: row.try_get("sees_all_sessions")?,
            xid_age: row.try_get("xid_age")?,
            now_ms: row.try_get("now_ms")?,
        })
    }
}

/// An application with the number of its sessions.
type Application = (String, i64);

/// Checks the settings, the connections, the clock and the open transactions.
pub(super) async fn check(
    pool: &PgPool,
    is_behind_proxy: bool,
    open_for: Duration,
) -> Result<Vec<Finding>, Fault> {
    const DOING: &str = "the server was asked for its settings";
    let reader = Reader { pool, persistent: !is_behind_proxy };
    // The first query opens the connection, which would count as time on the way.
    pool.acquire().await.map_err(Fault::sql(DOING))?;
    let (begun, asked_at) = (Instant::now(), SystemTime::now());
    let query = sqlx::query(include_str!("../../../sql/settings.sql")).persistent(reader.persistent);
    let row = query.fetch_one(pool).await.map_err(Fault::sql(DOING))?;
    let round_trip = begun.elapsed();
    let server = Server::from_row(&row).map_err(Fault::sql(DOING))?;
    let query = sqlx::query_as(include_str!("../../../sql/sessions.sql")).persistent(reader.persistent);
    let applications: Vec<Application> = query.fetch_all(pool).await.map_err(Fault::sql(DOING))?;
    let mut findings = settings(&server, &applications);
    findings.push(clock(server.now_ms, asked_at, round_trip));
    findings.extend(transactions(reader, open_for).await?);
    Ok(findings)
}

fn settings(server: &Server, applications: &[Application]) -> Vec<Finding> {
    use Level::{Problem, Warning};
    let mut findings = vec![];
    let mut check = |is_bad: bool, finding: Finding, good: String| {
        findings.push(if is_bad { finding } else { Finding::good(finding.check, good) });
    };
    let version = &server.version;
    check(
        server.version_number < VERSION_MIN,
        Finding::bad(
            Problem,
            "version",
            format!("the server is PostgreSQL {version}"),
            "update it to 15 or later",
        ),
        format!("PostgreSQL {version}"),
    );
    check(
        server.in_recovery,
        Finding::bad(
            Problem,
            "standby",
            "the server is a standby, which only reads",
            "connect to the primary server",
        ),
        "the server is no standby".into(),
    );
    check(
        !server.autovacuum,
        Finding::bad(
            Problem,
            "autovacuum",
            "autovacuum or track_counts is off, so tables and indexes grow without a limit",
            "set both to on",
        ),
        "autovacuum is on".into(),
    );
    check(
        !server.is_durable,
        Finding::bad(
            Problem,
            "durability",
            "fsync or full_page_writes is off: a power cut can destroy the database",
            "set both to on, unless the data may be lost",
        ),
        "fsync and full_page_writes are on".into(),
    );
    let synchronous = &server.synchronous_commit;
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
    let limit = server.statement_timeout_ms;
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
    let limit = server.idle_timeout_ms;
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
    let interval = server.check_interval_ms;
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
    let (used, max) = (server.connections, server.connections_max);
    let in_use = format!("{used} of {max} connections are in use{}", of_applications(applications));
    check(
        used * 100 > i64::from(max) * CONNECTIONS_MAX_PERCENT,
        Finding::bad(
            Warning,
            "connections",
            in_use.clone(),
            "raise max_connections, lower the pools of the programs, or use a proxy",
        ),
        in_use,
    );
    check(
        !server.sees_all_sessions,
        Finding::bad(
            Level::Note,
            "sessions",
            "the role of this connection sees the transactions of its own sessions only",
            "GRANT pg_read_all_stats to it, to have those of others checked",
        ),
        "the role of this connection sees all sessions".into(),
    );
    let age = server.xid_age;
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
    findings
}

/// The sessions by application, after the sum of all.
fn of_applications(applications: &[Application]) -> String {
    let mut parts: Vec<_> = applications
        .iter()
        .take(APPLICATIONS_MAX)
        .map(|(name, sessions)| match &**name {
            "" => format!("{sessions} without a name"),
            name => format!("{sessions} by `{name}`"),
        })
        .collect();
    let others: i64 = applications.iter().skip(APPLICATIONS_MAX).map(|(_, sessions)| sessions).sum();
    if others > 0 {
        parts.push(format!("{others} by others"));
    }
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

/// Compares the clock of the server with that of this machine: at `asked_at` it was asked, and the answer came after `round_trip`.
fn clock(server_ms: i64, asked_at: SystemTime, round_trip: Duration) -> Finding {
    let local = asked_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + round_trip / 2;
    let server = Duration::from_millis(u64::try_from(server_ms).unwrap_or(0));
    // What may be the time of the round trip is no difference.
    let apart = server.abs_diff(local).saturating_sub(round_trip / 2);
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
                    Advice::with_command(
                        "end it in its program; if that is gone:",
                        format!("SELECT pg_terminate_backend({name})"),
                    ),
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
    let absent = |text: String, advice: Advice| vec![Finding::bad(Level::Note, CHECK, text, advice)];
    let Some(extension) = extension else {
        return Ok(absent(
            "the extension pg_stat_statements is not installed in this database, so slow statements are not known".into(),
            Advice::with_command(
                "add it to shared_preload_libraries, and run:",
                "CREATE EXTENSION pg_stat_statements",
            ),
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
                "add pg_stat_statements to shared_preload_libraries, and grant pg_read_all_stats".into(),
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

/// A table, with its rows and its size.
#[derive(Clone, Debug)]
struct Table {
    name: String,
    live: i64,
    dead: i64,
    bytes: i64,
    vacuumed_ms_ago: Option<i64>,
}

impl Table {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.try_get("name")?,
            live: row.try_get("live")?,
            dead: row.try_get("dead")?,
            bytes: row.try_get("bytes")?,
            vacuumed_ms_ago: row.try_get("vacuumed_ms_ago")?,
        })
    }
}

/// Looks for tables with many removed rows.
pub(super) async fn tables(pool: &PgPool, schema: &str) -> Result<Vec<Finding>, Fault> {
    const DOING: &str = "the sizes of the tables were looked up";
    let query = sqlx::query(include_str!("../../../sql/tables.sql")).persistent(false);
    let rows = query.bind(schema).fetch_all(pool).await.map_err(Fault::sql(DOING))?;
    let tables = rows.iter().map(Table::from_row).collect::<sqlx::Result<Vec<_>>>();
    Ok(bloat(schema, &tables.map_err(Fault::sql(DOING))?))
}

fn bloat(schema: &str, tables: &[Table]) -> Vec<Finding> {
    let bloated = |table: &&Table| {
        // The working set is small, and most of its rows are short-lived: the vacuum of the server follows at 2 %.
        let allowed = if table.name == "run" { table.live.saturating_mul(10) } else { table.live / 2 };
        table.dead > DEAD_MIN.max(allowed)
    };
    let findings: Vec<_> = tables
        .iter()
        .filter(bloated)
        .map(|Table { name, live, dead, vacuumed_ms_ago, .. }| {
            let vacuumed = vacuumed_ms_ago
                .and_then(|ago| u64::try_from(ago).ok())
                .map_or("never".into(), |ago| format!("{} ago", in_words(Duration::from_millis(ago))));
            Finding::bad(
                Level::Warning,
                "bloat",
                format!(
                    "table `{name}` has {dead} removed rows beside {live}; its last vacuum was {vacuumed}"
                ),
                Advice::with_command(
                    "look for old transactions, let autovacuum run more often if it comes back, and run:",
                    format!("VACUUM {}.{name}", identifier(schema)),
                ),
            )
        })
        .collect();
    if !findings.is_empty() {
        return findings;
    }
    let bytes: i64 = tables.iter().map(|table| table.bytes).sum();
    let text =
        format!("{} tables with {} MB in all, without many removed rows", tables.len(), bytes / 1_000_000);
    vec![Finding::good("bloat", text)]
}

/// A name as an identifier of SQL.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server without a fault.
    fn good() -> Server {
        Server {
            version: "17.2".into(),
            version_number: 17_00_02,
            in_recovery: false,
            autovacuum: true,
            is_durable: true,
            synchronous_commit: "on".into(),
            statement_timeout_ms: 0,
            idle_timeout_ms: 0,
            check_interval_ms: 10_000,
            connections: 40,
            connections_max: 97,
            sees_all_sessions: true,
            xid_age: 1_000,
            now_ms: 0,
        }
    }

    /// The findings that are not good, with their levels and advice.
    fn bad(findings: Vec<Finding>) -> Vec<(Level, &'static str, String)> {
        let bad = findings.into_iter().filter(|finding| finding.level != Level::Good);
        bad.map(|finding| {
            assert!(finding.advice.is_some_and(|advice| !advice.text.is_empty()), "{}", finding.check);
            (finding.level, finding.check, finding.text)
        })
        .collect()
    }

    #[test]
    fn server_without_a_fault_has_good_findings_only() {
        assert_eq!(bad(settings(&good(), &[])), []);
    }

    #[test]
    fn each_bad_setting_is_the_only_finding_that_is_not_good() {
        use Level::{Note, Problem, Warning};
        type Spoil = fn(&mut Server);
        let cases: [(Spoil, Level, &str); 12] = [
            (|it| (it.version, it.version_number) = ("14.9".into(), 14_00_09), Problem, "version"),
            (|it| it.in_recovery = true, Problem, "standby"),
            (|it| it.autovacuum = false, Problem, "autovacuum"),
            (|it| it.is_durable = false, Problem, "durability"),
            (|it| it.synchronous_commit = "off".into(), Warning, "synchronous_commit"),
            (|it| it.statement_timeout_ms = 5_000, Warning, "statement_timeout"),
            (|it| it.idle_timeout_ms = 59_999, Warning, "idle_in_transaction_session_timeout"),
            (|it| it.check_interval_ms = 0, Note, "client_connection_check_interval"),
            (|it| it.connections = 83, Warning, "connections"),
            (|it| it.sees_all_sessions = false, Note, "sessions"),
            (|it| it.xid_age = XID_AGE_MAX + 1, Problem, "wraparound"),
            (|it| it.connections_max = 40, Warning, "connections"),
        ];
        for (spoil, level, check) in cases {
            let mut server = good();
            spoil(&mut server);
            let found = bad(settings(&server, &[]));
            let [(found_level, found_check, _)] = &found[..] else { panic!("{check}: {found:?}") };
            assert_eq!((*found_level, *found_check), (level, check));
        }
    }

    #[test]
    fn setting_at_its_limit_is_good() {
        let server = Server {
            version_number: VERSION_MIN,
            idle_timeout_ms: 60_000,
            connections: 82,
            xid_age: XID_AGE_MAX,
            synchronous_commit: "remote_apply".into(),
            ..good()
        };
        assert_eq!(bad(settings(&server, &[])), []);
    }

    #[test]
    fn sessions_are_summed_up_by_application() {
        let applications: Vec<_> =
            [("shop", 30), ("", 4), ("psql", 2), ("a", 1), ("b", 1), ("c", 1), ("d", 1)]
                .map(|(name, sessions)| (name.to_owned(), sessions))
                .into();
        let findings = settings(&good(), &applications);
        let text =
            findings.iter().find(|finding| finding.check == "connections").map(|finding| &*finding.text);
        let expected = "40 of 97 connections are in use: 30 by `shop`, 4 without a name, 2 by `psql`, 1 by `a`, 1 by `b`, \
                        2 by others";
        assert_eq!(text, Some(expected));
    }

    #[test]
    fn clocks_apart_are_a_warning_and_far_apart_a_problem() {
        let asked_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let level = |server_ms| clock(server_ms, asked_at, Duration::from_millis(200)).level;
        assert_eq!(level(1_000_000_100), Level::Good);
        // The time of the way is no difference.
        assert_eq!(level(1_000_001_200), Level::Good);
        assert_eq!(level(1_000_001_300), Level::Warning);
        assert_eq!(level(999_998_000), Level::Warning);
        assert_eq!(level(1_000_000_000 - 61_000), Level::Problem);
        let found = clock(1_000_000_100 + 90_100, asked_at, Duration::from_millis(200));
        assert_eq!(found.text, "the clocks of the server and of this machine are 1m 30s apart");
    }

    #[test]
    fn table_with_many_removed_rows_is_named_with_its_last_vacuum() {
        let table = |name: &str, live, dead, vacuumed_ms_ago| Table {
            name: name.into(),
            live,
            dead,
            bytes: 3_000_000,
            vacuumed_ms_ago,
        };
        let good = [
            table("message", 200_000, 100_000, None),
            table("message_event", 0, DEAD_MIN, None),
            table("run", 10_000, 100_000, None),
        ];
        let [found] = &bloat("scoop", &good)[..] else { panic!("one finding") };
        assert_eq!(
            (found.level, &*found.text),
            (Level::Good, "3 tables with 9 MB in all, without many removed rows")
        );
        let found = bloat(
            "scoop",
            &[
                table("message", 200_000, 100_001, None),
                table("run", 10_000, 100_001, Some(7_200_000)),
                table("x", 1, 1, None),
            ],
        );
        let texts: Vec<_> = found.iter().map(|finding| (finding.level, &*finding.text)).collect();
        let expected = [
            "table `message` has 100001 removed rows beside 200000; its last vacuum was never",
            "table `run` has 100001 removed rows beside 10000; its last vacuum was 2h ago",
        ];
        assert_eq!(texts, expected.map(|text| (Level::Warning, text)));
        assert!(found[1].advice.as_ref().is_some_and(|advice| advice.commands == ["VACUUM \"scoop\".run"]));
    }
}
