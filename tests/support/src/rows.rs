//! The rows of `message_event` in the notation of `docs/reference/conformance.md`.
//!
//! ```text
//! <message> <TYPE> <handler> <step> [next=n] [cfhi=n] [wait] [anew] [L=[R,a,..]] [ctx=<name>] [exc=<exception>]
//! ```
//!
//! `·` is NULL, as are `next`, `cfhi`, `wait`, `anew` and `ctx` where they are not mentioned. `RB(x)` and `RBC(x)`
//! are the parts of a rollback. [`History::expect_with`] defines the names of contexts. An
//! exception is `Type(message)@source[causes]`. Each part but the type may be missing. `…` is any
//! message, and `=row k` is the exception in that row of the block. `@h` is the source of a run of
//! `h`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::SystemTime;

use scoop::{Failure, LoggedEvent};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::types::Json;
use uuid::Uuid;

use super::exceptions::Exception;

const QUERY: &str = "
    SELECT to_jsonb(e) FROM (
        SELECT message_id, type::text AS kind, coroutine_name AS handler,
               coroutine_identifier AS worker, step, next_step,
               child_failure_handler_iteration AS cfhi, cooperation_lineage AS lineage, exception, wait IS NOT NULL AS waits,
               type = 'SUSPENDED' AND EXISTS (SELECT FROM {schema}.execution x
                   WHERE x.run = {schema}.run_id(e.cooperation_lineage) AND x.began_at = e.created_at) AS anew,
               context, (extract(epoch FROM created_at) * 1000000)::bigint AS micros
        FROM {schema}.message_event e
        ORDER BY created_at, id
    ) e";

/// The types of rows that have an exception. No others do.
const WITH_EXCEPTION: [&str; 4] =
    ["ROLLING_BACK", "ROLLBACK_EMITTED", "ROLLBACK_FAILED", "CANCELLATION_REQUESTED"];

/// The placeholder for any value in a context.
const ANY: &str = "…";

/// All recorded events, in order.
pub struct History {
    rows: Vec<Row>,
}

/// One row of the table.
#[derive(Clone)]
pub struct Row {
    /// `M0`, `M1`, … in the order in which the messages were emitted.
    pub message: String,
    /// The saga of the run.
    pub handler: Option<String>,
    /// Its worker.
    pub worker: Option<String>,
    /// Why.
    pub exception: Option<Failure>,
    stored: Stored,
}

#[derive(Clone, Deserialize)]
struct Stored {
    message_id: Uuid,
    kind: String,
    handler: Option<String>,
    worker: Option<String>,
    step: Option<String>,
    next_step: Option<i32>,
    cfhi: Option<i32>,
    anew: bool,
    waits: bool,
    lineage: Vec<Uuid>,
    exception: Option<Value>,
    context: Option<Value>,
    micros: i64,
}

impl History {
    pub(crate) async fn read(pool: &PgPool, schema: &str) -> Self {
        let sql = sqlx::AssertSqlSafe(QUERY.replace("{schema}", schema));
        let rows: Vec<Json<Value>> =
            sqlx::query_scalar(sql).fetch_all(pool).await.expect("the events can be read");
        Self::of_rows(rows.into_iter().map(|Json(row)| row))
    }

    /// The events recorded in memory.
    pub fn of_log(mut events: Vec<LoggedEvent>) -> Self {
        events.sort_by_key(|event| (event.at, event.id));
        Self::of_rows(events.into_iter().map(logged))
    }

    /// Rows as [`QUERY`] gives them.
    fn of_rows(rows: impl IntoIterator<Item = Value>) -> Self {
        let stored = rows.into_iter().map(|row| serde_json::from_value(row).expect("a row of an event"));
        let stored: Vec<Stored> = stored.collect();
        let mut names = HashMap::new();
        for row in stored.iter().filter(|row| row.kind == "EMITTED") {
            let next = names.len();
            names.entry(row.message_id).or_insert(next);
        }
        let rows = stored.into_iter().map(|stored| Row {
            message: format!("M{}", names[&stored.message_id]),
            handler: stored.handler.clone(),
            worker: stored.worker.clone(),
            exception: stored.exception.clone().map(|json| serde_json::from_value(json).expect("a failure")),
            stored,
        });
        let history = Self { rows: rows.collect() };
        history.check_what_always_holds();
        history
    }

    /// The rows of these handlers, and those without handler.
    pub fn of(&self, handlers: &[&str]) -> History {
        let known = |row: &&Row| row.handler.as_deref().is_none_or(|handler| handlers.contains(&handler));
        History { rows: self.rows.iter().filter(known).cloned().collect() }
    }

    /// The rows of these messages.
    pub fn about(&self, messages: &[&str]) -> History {
        let known = |row: &&Row| messages.contains(&&*row.message);
        History { rows: self.rows.iter().filter(known).cloned().collect() }
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// How many rows there are of that type.
    pub fn count(&self, kind: &str) -> usize {
        self.rows.iter().filter(|row| row.stored.kind == kind).count()
    }

    /// The one row of this type and handler.
    #[track_caller]
    pub fn only(&self, kind: &str, handler: &str) -> &Row {
        let mut rows =
            self.rows.iter().filter(|row| row.stored.kind == kind && row.handler.as_deref() == Some(handler));
        match (rows.next(), rows.next()) {
            (Some(row), None) => row,
            (first, _) => panic!(
                "{} rows {kind} of {handler} in\n{self}",
                if first.is_some() { "several" } else { "no" }
            ),
        }
    }

    /// Fails if these are not the rows of the block.
    #[track_caller]
    pub fn expect(&self, block: &str) {
        self.expect_with(&[], block);
    }

    /// The same for a block that mentions contexts, with the values of their names. The text `…` in
    /// there stands for any value.
    #[track_caller]
    pub fn expect_with(&self, contexts: &[(&str, Value)], block: &str) {
        let lines = block.lines().map(str::trim).filter(|line| !line.is_empty());
        let expected: Vec<_> = lines.map(Expected::parse).collect();
        let texts: Vec<_> = expected.iter().map(|row| row.columns.clone()).collect();
        let actual: Vec<_> = self.rows.iter().map(|row| row.columns(contexts)).collect();
        if texts != actual {
            panic!(
                "other rows than expected (-), but these (+):\n{}\nin full:\n{self}",
                diff(&texts, &actual)
            );
        }
        let mut letters = Letters::default();
        for (at, (expected, actual)) in expected.iter().zip(&self.rows).enumerate() {
            let place = format!("row {}, {}", at + 1, expected.columns);
            if let Some(lineage) = &expected.lineage {
                letters.bind(lineage, &actual.stored.lineage, &place);
            }
            if let Some(exception) = &expected.exception {
                let failure = actual.exception.as_ref().unwrap_or_else(|| panic!("{place}: no exception"));
                if let Err(why) = exception.matches(failure, self) {
                    panic!("{place}: {why}\nexpected: {exception}\nactual:\n{}", failure.report());
                }
            }
        }
    }

    /// Checks the rules for the rows of every scenario.
    fn check_what_always_holds(&self) {
        let mut newest: HashMap<&[Uuid], i64> = HashMap::new();
        let emitted = |row: &&Row| row.stored.kind == "EMITTED";
        let emissions: HashMap<_, _> =
            self.rows.iter().filter(emitted).map(|row| (&row.message, &row.stored.lineage)).collect();
        for row in &self.rows {
            let Stored { kind, lineage, micros, handler, worker, .. } = &row.stored;
            if let Some(before) = newest.insert(lineage, *micros) {
                assert!(before < *micros, "times do not rise within a lineage: {row}\nin\n{self}");
            }
            let ours = worker.as_deref().is_some_and(|worker| worker.starts_with("scoop-rs:"));
            assert_eq!(ours, handler.is_some(), "the rows of a handler are written by our worker: {row}");
            assert_ne!(row.stored.context, Some(json!({})), "an empty context is NULL: {row}");
            let fails = WITH_EXCEPTION.contains(&kind.as_str());
            // A step that succeeded in the end tells of its failed attempts.
            let failure =
                row.exception.as_ref().filter(|it| kind != "SUSPENDED" || it.kind != "FailedAttempts");
            assert_eq!(failure.is_some(), fails, "an exception where one belongs: {row}");
            let (parent, seen) = (emissions[&row.message], kind == "SEEN");
            let extends = lineage.len() == parent.len() + 1 && lineage.starts_with(parent);
            assert!(!seen || extends, "a run's lineage is that of its emission and one more: {row}");
        }
    }

    /// The workers that wrote for a handler.
    pub(crate) fn workers_of(&self, handler: &str) -> BTreeSet<&str> {
        let rows = self.rows.iter().filter(|row| row.handler.as_deref() == Some(handler));
        rows.filter_map(|row| row.worker.as_deref()).collect()
    }
}

/// The event as a row of [`QUERY`].
fn logged(event: LoggedEvent) -> Value {
    let since = event.at.duration_since(SystemTime::UNIX_EPOCH).expect("it is later than that");
    json!({
        "message_id": event.message_id, "kind": event.kind.as_str(), "handler": event.handler,
        "worker": event.worker, "step": event.step, "next_step": event.next_step,
        "cfhi": event.child_failure_handler_iteration, "anew": event.continues_as_new,
        "waits": event.waits_until.is_some() || event.awaits.is_some(), "lineage": event.lineage.ids(),
        "exception": event.exception, "context": Some(event.context).filter(|context| !context.is_empty()),
        "micros": u64::try_from(since.as_micros()).expect("the time fits into 64 bits"),
    })
}

impl Row {
    /// The context, if there is one.
    pub fn context(&self) -> Option<&Value> {
        self.stored.context.as_ref()
    }

    /// When it was written, in microseconds since 1970.
    pub fn micros(&self) -> i64 {
        self.stored.micros
    }

    /// Everything but lineage and exception; contexts by their names, where they have one.
    fn columns(&self, contexts: &[(&str, Value)]) -> String {
        let Stored { kind, handler, step, next_step, cfhi, waits, anew, context, .. } = &self.stored;
        let handler = handler.as_deref().unwrap_or("·");
        let step = step.as_deref().map_or("·".into(), abbreviated);
        let mut text = format!("{} {kind} {handler} {step}", self.message);
        for (name, value) in [("next", next_step), ("cfhi", cfhi)] {
            if let Some(value) = value {
                text += &format!(" {name}={value}");
            }
        }
        for (name, is_set) in [(" wait", waits), (" anew", anew)] {
            text += if *is_set { name } else { "" };
        }
        if let Some(context) = context {
            match contexts.iter().find(|(_, pattern)| fits(pattern, context)) {
                Some((name, _)) => text += &format!(" ctx={name}"),
                None => text += &format!(" ctx={context}"),
            }
        }
        text
    }
}

/// Whether the value matches the pattern, which may have placeholders.
fn fits(pattern: &Value, value: &Value) -> bool {
    match (pattern, value) {
        (Value::String(any), _) if any == ANY => true,
        (Value::Object(pattern), Value::Object(value)) => {
            let known = |(key, pattern)| value.get(key).is_some_and(|value| fits(pattern, value));
            pattern.len() == value.len() && pattern.iter().all(known)
        }
        (Value::Array(pattern), Value::Array(value)) => {
            let mut pairs = pattern.iter().zip(value);
            pattern.len() == value.len() && pairs.all(|(pattern, value)| fits(pattern, value))
        }
        (pattern, value) => pattern == value,
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.columns(&[]))?;
        if let Some(failure) = &self.exception {
            write!(f, " exc={}", Exception::of(failure))?;
        }
        Ok(())
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.iter().enumerate().try_for_each(|(at, row)| writeln!(f, "{:>4}  {row}", at + 1))
    }
}

/// A row of a block.
struct Expected {
    columns: String,
    lineage: Option<Vec<String>>,
    exception: Option<Exception>,
}

impl Expected {
    fn parse(line: &str) -> Self {
        let (line, exception) = match line.split_once(" exc=") {
            Some((line, exception)) => (line, Some(Exception::parse(exception))),
            None => (line, None),
        };
        let words = words(line);
        let mut row = Self { columns: words[..4].join(" "), lineage: None, exception };
        row.columns = match words[3].strip_prefix('"').and_then(|step| step.strip_suffix('"')) {
            Some(step) => format!("{} {}", words[..3].join(" "), abbreviated(step)),
            None => row.columns,
        };
        for word in &words[4..] {
            if ["wait", "anew"].contains(word) {
                row.columns += &format!(" {word}");
                continue;
            }
            match word.split_once('=').unwrap_or_else(|| panic!("`{word}` in a block of rows")) {
                ("L", lineage) => {
                    let letters = lineage.trim_matches(['[', ']']).split(',');
                    row.lineage = Some(letters.map(str::to_owned).collect());
                }
                ("next" | "cfhi" | "ctx", _) => row.columns += &format!(" {word}"),
                _ => panic!("`{word}` in a block of rows"),
            }
        }
        row
    }
}

/// Split at blanks that do not stand in quotes.
fn words(line: &str) -> Vec<&str> {
    let mut quoted = false;
    let blank = |c: char| {
        quoted ^= c == '"';
        !quoted && c.is_whitespace()
    };
    line.split(blank).filter(|word| !word.is_empty()).collect()
}

/// A step's name, that of a part of a rollback in its short form.
fn abbreviated(step: &str) -> String {
    let Some(part) = step.strip_prefix("Rollback of ") else {
        return if step.contains(' ') { format!("\"{step}\"") } else { step.into() };
    };
    match part.strip_suffix(" (rolling back child scopes)") {
        Some(part) => format!("RBC({part})"),
        None => format!("RB({part})"),
    }
}

/// The full name of a step, of which this may be the short form.
pub(crate) fn in_full(step: &str) -> String {
    let inner = |prefix: &str| step.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')'));
    match (inner("RBC("), inner("RB(")) {
        (Some(part), _) => format!("Rollback of {part} (rolling back child scopes)"),
        (_, Some(part)) => format!("Rollback of {part}"),
        _ => step.into(),
    }
}

/// Which id each letter of the block stands for.
#[derive(Default)]
struct Letters(HashMap<String, Uuid>);

impl Letters {
    #[track_caller]
    fn bind(&mut self, letters: &[String], ids: &[Uuid], place: &str) {
        assert_eq!(letters.len(), ids.len(), "{place}: the length of lineage {ids:?}");
        for (letter, id) in letters.iter().zip(ids) {
            let bound = *self.0.entry(letter.clone()).or_insert(*id);
            assert_eq!(bound, *id, "{place}: the id of {letter}");
            let letters_of_id = self.0.values().filter(|other| *other == id).count();
            assert_eq!(letters_of_id, 1, "{place}: another letter has the id of {letter}");
        }
    }
}

/// Both sequences in one: lines of the expected one, lines of the actual one, and common lines.
pub(crate) fn diff(expected: &[String], actual: &[String]) -> String {
    let (n, m) = (expected.len(), actual.len());
    let mut common = vec![vec![0; m + 1]; n + 1];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            common[i][j] = match expected[i] == actual[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < n || j < m {
        if i < n && j < m && expected[i] == actual[j] {
            text += &format!("    {}\n", expected[i]);
            (i, j) = (i + 1, j + 1);
        } else if j == m || i < n && common[i + 1][j] >= common[i][j + 1] {
            text += &format!("  - {}\n", expected[i]);
            i += 1;
        } else {
            text += &format!("  + {}\n", actual[j]);
            j += 1;
        }
    }
    text
}
