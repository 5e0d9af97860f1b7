//! What is on record, hierarchy by hierarchy, as it is read in the end.

use scoop::Result;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{PgPool, Row};
use uuid::Uuid;

/// One event. What a message says stands with those that began to handle it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) lineage: Vec<Uuid>,
    pub(crate) kind: String,
    pub(crate) handler: Option<String>,
    pub(crate) step: Option<String>,
    pub(crate) handling: Option<i32>,
    pub(crate) payload: Option<Json<serde_json::Value>>,
}

const EVENTS: &str = "
    SELECT e.cooperation_lineage AS lineage, e.type::text AS kind, e.coroutine_name AS handler, e.step,
           e.child_failure_handler_iteration AS handling, CASE WHEN e.type = 'SEEN' THEN m.payload END AS payload
    FROM scoop.message_event e JOIN scoop.message m ON m.id = e.message_id
    WHERE e.cooperation_lineage[1] = ANY($1)
    ORDER BY e.cooperation_lineage[1], e.created_at, e.id";

/// The ids of all hierarchies, in parts of a size that fits into memory.
pub(crate) async fn hierarchies(pool: &PgPool) -> Result<Vec<Vec<Uuid>>> {
    let roots = "SELECT DISTINCT cooperation_lineage[1] FROM scoop.message_event ORDER BY 1";
    let roots: Vec<Uuid> = sqlx::query_scalar(roots).fetch_all(pool).await?;
    Ok(roots.chunks(PART).map(<[Uuid]>::to_vec).collect())
}

/// How many hierarchies are read at once.
const PART: usize = 2_000;

/// Their events in order, hierarchy by hierarchy.
pub(crate) async fn events(pool: &PgPool, roots: &[Uuid]) -> Result<Vec<Vec<Event>>> {
    let rows = sqlx::query(EVENTS).bind(roots).fetch_all(pool).await?;
    let events = rows.iter().map(Event::read).collect::<sqlx::Result<Vec<_>>>()?;
    let by_root = events.chunk_by(|one, next| one.lineage[0] == next.lineage[0]);
    Ok(by_root.map(<[Event]>::to_vec).collect())
}

impl Event {
    fn read(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            lineage: row.try_get("lineage")?,
            kind: row.try_get("kind")?,
            handler: row.try_get("handler")?,
            step: row.try_get("step")?,
            handling: row.try_get("handling")?,
            payload: row.try_get("payload")?,
        })
    }
}

/// What a run did, told by its events.
#[derive(Debug)]
pub(crate) struct RunRecord {
    pub(crate) id: Uuid,
    pub(crate) is_root: bool,
    pub(crate) handler: String,
    pub(crate) payload: serde_json::Value,
    /// The steps that came to their end, and the parts of a rollback, in order.
    pub(crate) done: Vec<String>,
    pub(crate) end: End,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Unfinished,
    Committed,
    RolledBack,
    NotUndone,
}

/// The runs of a hierarchy.
pub(crate) fn runs(events: &[Event]) -> Vec<RunRecord> {
    let begun = events.iter().filter_map(|seen| {
        let (Some(handler), Some(Json(payload))) = (&seen.handler, &seen.payload) else { return None };
        let own: Vec<_> = events
            .iter()
            .filter(|event| event.lineage == seen.lineage && event.handler.as_ref() == Some(handler))
            .collect();
        let suspended = own.iter().filter(|event| event.kind == "SUSPENDED" && event.handling.is_none());
        let done = suspended.filter_map(|event| event.step.clone()).collect();
        Some(RunRecord {
            id: *seen.lineage.last()?,
            is_root: seen.lineage.len() == 2,
            handler: handler.clone(),
            payload: payload.clone(),
            done,
            end: end_of(&own),
        })
    });
    begun.collect()
}

/// One that committed may be undone later.
fn end_of(events: &[&Event]) -> End {
    let mut ends = events.iter().filter_map(|event| match &*event.kind {
        "COMMITTED" => Some(End::Committed),
        "ROLLING_BACK" => Some(End::Unfinished),
        "ROLLED_BACK" => Some(End::RolledBack),
        "ROLLBACK_FAILED" => Some(End::NotUndone),
        _ => None,
    });
    ends.next_back().unwrap_or(End::Unfinished)
}
