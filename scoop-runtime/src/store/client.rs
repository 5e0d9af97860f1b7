//! What clients ask of the database, one function for each statement.

use std::collections::BTreeMap;

use scoop_core::{Context, Failure, Lineage, Run};
use serde::Serialize;
use serde_json::Value;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgExecutor, Postgres, Row, SqlStr};
use time::OffsetDateTime;
use uuid::Uuid;

use super::alone::Alone;
use super::bulk::is_bulky;
use super::rows::{failure, timestamps};
use super::{Claimed, Key, Surroundings, Tables};
use crate::ids;
use crate::store::Unhandled;
use crate::tree::{Extent, RunRow, TreeRows};

/// A message that starts a hierarchy of its own.
#[derive(Debug, Serialize)]
pub(crate) struct Launched {
    pub(crate) id: Uuid,
    pub(crate) root: Uuid,
    pub(crate) topic: &'static str,
    pub(crate) payload: Value,
    pub(super) context: Context,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(super) due: Option<OffsetDateTime>,
    #[serde(serialize_with = "timestamps")]
    deadlines: Vec<OffsetDateTime>,
    /// The runs for which the launching worker has slots, by handler.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) here: BTreeMap<String, Uuid>,
    /// The Rust type of the message if the launch is refused without a handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) required: Option<&'static str>,
    /// How large it is about, in bytes of JSON.
    #[serde(skip)]
    pub(crate) bytes: usize,
    /// It may be there already.
    #[serde(skip)]
    pub(crate) only_once: bool,
}

/// A worker that claims runs of the messages that it launches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimer<'a> {
    pub(crate) worker: Uuid,
    /// Its identifier in events.
    pub(crate) identifier: &'a str,
    /// The value of `worker.topology` that it knows. By another value it claims nothing.
    pub(crate) topology: i64,
}

/// The messages for an attempt to launch them: after another one they may be there already.
pub(crate) fn known_before(messages: &mut [Launched], again: bool) -> &[Launched] {
    if again {
        messages.iter_mut().for_each(Launched::again);
    }
    messages
}

/// Under which ids messages are known that may be launched only once.
const UNIQUE: Uuid = Uuid::from_u128(0x6d1f_46a2_0c5e_4e0b_9d0a_7b1b_5a3c_9e21);

impl Launched {
    /// A message with fresh ids.
    pub(crate) fn new(topic: &'static str, payload: Value, bytes: usize) -> Self {
        let (id, root) = (ids::now_v7(), ids::now_v7());
        let (context, deadlines, here) = (Context::default(), vec![], BTreeMap::new());
        Self {
            id,
            root,
            topic,
            payload,
            context,
            due: None,
            deadlines,
            here,
            required: None,
            bytes,
            only_once: false,
        }
    }

    /// The same message, whose ids follow from its topic and the key: it cannot be there twice.
    pub(crate) fn unique(mut self, key: &str) -> Self {
        let namespace = Uuid::new_v5(&UNIQUE, self.topic.as_bytes());
        self.id = Uuid::new_v5(&namespace, key.as_bytes());
        self.root = Uuid::new_v5(&self.id, b"root");
        self.only_once = true;
        self
    }

    /// Launches it unless it is there. Its runs are left to any worker with room.
    pub(crate) fn again(&mut self) {
        self.only_once = true;
        self.here.clear();
    }

    /// The same message, with this context.
    pub(crate) fn with(mut self, context: Context) -> Self {
        self.due = context.not_before();
        self.deadlines = context.give_up_at(false);
        self.bytes += context.bytes();
        self.context = context;
        self
    }

    /// Whether something becomes due at a certain time because of this.
    pub(crate) fn sets_a_time(&self) -> bool {
        self.due.is_some() || !self.deadlines.is_empty()
    }

    /// Whether it may be there already or be refused, of which only `0010_launch.sql` and `message_launch.sql` know.
    pub(crate) fn is_conditional(&self) -> bool {
        self.only_once || self.required.is_some()
    }

    /// Whether it is launched in any case, and nothing of it is to be done at a certain time.
    fn is_plain(&self) -> bool {
        !self.is_conditional() && !self.sets_a_time()
    }

    /// Until when its runs have to be done.
    pub(super) fn give_up_at(&self) -> Option<OffsetDateTime> {
        self.deadlines.iter().min().copied()
    }

    /// Its context, if that says anything.
    fn said(&self) -> Option<Json<&Context>> {
        Some(Json(&self.context)).filter(|context| !context.is_empty())
    }

    /// Its statement, if it is the only one.
    fn publish(&self, statement: SqlStr) -> Query<'_, Postgres, PgArguments> {
        sqlx::query(statement)
            .bind(self.id)
            .bind(self.root)
            .bind(ids::now_v7())
            .bind(ids::now_v7())
            .bind(self.topic)
            .bind(&self.payload)
            .bind(self.said())
            .bind(self.due)
            .bind(self.give_up_at())
    }

    /// Its statement, if it is the only one, and the launching worker has room for some of its runs.
    fn publish_here<'a>(
        &'a self,
        statement: SqlStr,
        claimer: Claimer<'a>,
    ) -> Query<'a, Postgres, PgArguments> {
        sqlx::query(statement)
            .bind(self.id)
            .bind(self.root)
            .bind(ids::now_v7())
            .bind(self.topic)
            .bind(&self.payload)
            .bind(self.said())
            .bind(claimer.worker)
            .bind(claimer.identifier)
            .bind(self.here.keys().map(String::as_str).collect::<Vec<_>>())
            .bind(self.here.values().copied().collect::<Vec<_>>())
            .bind(self.here.values().map(|_| ids::now_v7()).collect::<Vec<_>>())
            .bind(claimer.topology)
    }

    /// Has the run of this handler claimed when it is launched: under this key, if all goes well.
    pub(crate) fn run_here(&mut self, handler: &str) -> Key {
        let run = ids::now_v7();
        self.here.insert(handler.to_owned(), run);
        Key { root: self.root, id: run, epoch: 1 }
    }

    /// The run that was claimed when this was launched, as any claim would have it. `worker` is the
    /// identifier in events.
    pub(crate) fn claimed(&self, key: Key, handler: String, worker: &str) -> Claimed {
        let source = format!("{handler}[{worker}]");
        let mut begun = Run::new(Lineage::root(self.root).child(key.id), self.id, source);
        begun.context = self.context.clone();
        Claimed {
            key,
            topic: self.topic.to_owned(),
            handler,
            payload: self.payload.clone(),
            attempts: 0,
            retries: 0,
            tried_under: vec![],
            surroundings: Surroundings { has_parent: false, undoing: false },
            overdue: false,
            definition: None,
            reserved_for: 0,
            run: begun,
        }
    }
}

/// What became of a launch.
#[derive(Debug)]
pub(crate) struct Launch {
    /// How many of the messages were not there before.
    pub(crate) launched: i64,
    /// Who has something to do.
    pub(crate) handlers: Vec<String>,
    /// The runs that were claimed.
    pub(crate) claimed: Vec<Uuid>,
}

/// What became of a message with one of its handlers.
#[derive(Debug)]
pub(crate) enum HandlerOutcome {
    Unfinished,
    Committed,
    RolledBack(Failure),
    RollbackFailed { failure: Failure, cause: Failure },
}

impl HandlerOutcome {
    /// From a row of `message_standing.sql`, if that is about a handler.
    fn from_row(row: &PgRow) -> sqlx::Result<Option<Self>> {
        if row.try_get::<Option<&str>, _>("handler")?.is_none() {
            return Ok(None);
        }
        Ok(Some(match row.try_get("type")? {
            Some("COMMITTED") => Self::Committed,
            Some("ROLLED_BACK") => Self::RolledBack(failure(row, "cause")?),
            Some("ROLLBACK_FAILED") => {
                Self::RollbackFailed { failure: failure(row, "exception")?, cause: failure(row, "cause")? }
            }
            _ => Self::Unfinished,
        }))
    }
}

/// How far a message is.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) emitted: bool,
    pub(crate) unfinished: i64,
    /// The outcome of each handler, once no run is unfinished.
    pub(crate) handlers: Vec<HandlerOutcome>,
}

/// The statement of many of them.
fn publish_all(statement: SqlStr, messages: &[Launched]) -> Query<'_, Postgres, PgArguments> {
    let each = || messages.iter();
    sqlx::query(statement)
        .bind(each().map(|message| message.id).collect::<Vec<_>>())
        .bind(each().map(|message| message.root).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|_| ids::now_v7()).collect::<Vec<_>>())
        .bind(each().map(|message| message.topic).collect::<Vec<_>>())
        .bind(each().map(|message| Json(&message.payload)).collect::<Vec<_>>())
        .bind(each().map(Launched::said).collect::<Vec<_>>())
        .bind(each().map(|message| message.due).collect::<Vec<_>>())
        .bind(each().map(Launched::give_up_at).collect::<Vec<_>>())
}

/// What a conditional launch has done, unless it was refused.
fn launch_of(row: &PgRow) -> sqlx::Result<Launch> {
    if let Some(topic) = row.try_get("refused")? {
        return Err(Unhandled { topic, message: row.try_get("refused_type")?, at: None }.into());
    }
    Ok(Launch { launched: row.try_get("launched")?, handlers: row.try_get("handlers")?, claimed: vec![] })
}

/// Begins the transaction in which a tree is read. The limit also ends the statement of a read that was dropped.
const READ_TREE: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = '60s'";

impl Tables {
    /// Publishes messages and starts a run for each listed handler. Fails with [`Unhandled`] if one of them
    /// requires a handler and there is none; then none of them is published.
    pub(crate) async fn launch(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[Launched],
    ) -> sqlx::Result<Launch> {
        if messages.iter().any(Launched::is_conditional) || !self.may_write().await? {
            return self.launch_any(executor, messages).await;
        }
        let publish = match messages {
            [message] => message.publish(self.sql.message_publish_one.clone()),
            _ => publish_all(self.sql.message_publish.clone(), messages),
        };
        // The transaction may be one of the user, in which names may be taken.
        let rows = publish.persistent(self.sessions.keeps_statements()).fetch_all(executor).await?;
        let handlers = rows.iter().map(|row| row.try_get("handler")).collect::<Result<_, _>>()?;
        Ok(Launch { launched: i64::try_from(messages.len()).unwrap_or(i64::MAX), handlers, claimed: vec![] })
    }

    /// The same, by a worker that has room for some of the runs: these are claimed.
    pub(crate) async fn launch_here(
        &self,
        claimer: Claimer<'_>,
        messages: &[Launched],
    ) -> sqlx::Result<Launch> {
        let launch = async |session: &mut _| match messages {
            [one] if one.is_plain() => self.launch_one_here(session, claimer, one).await,
            all => self.launch_for(session, all, claimer).await,
        };
        self.sessions.run(launch).await
    }

    pub(super) async fn launch_one_here(
        &self,
        executor: impl PgExecutor<'_>,
        claimer: Claimer<'_>,
        message: &Launched,
    ) -> sqlx::Result<Launch> {
        debug_assert!(message.is_plain(), "the statement knows nothing of the rest");
        let publish = message.publish_here(self.sql.message_launch_one.clone(), claimer);
        let mut launch = Launch { launched: 1, handlers: vec![], claimed: vec![] };
        for row in publish.persistent(self.sessions.keeps_statements()).fetch_all(executor).await? {
            if row.try_get("claimed")? {
                launch.claimed.push(row.try_get("id")?);
            } else {
                launch.handlers.push(row.try_get("handler")?);
            }
        }
        Ok(launch)
    }

    pub(super) async fn launch_for(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[impl Serialize + Sync],
        claimer: Claimer<'_>,
    ) -> sqlx::Result<Launch> {
        let launch = sqlx::query(self.sql.message_launch.clone()).bind(Json(messages)).bind(claimer.worker);
        let launch = launch.bind(claimer.identifier).bind(claimer.topology);
        let row = launch.persistent(self.sessions.keeps_statements()).fetch_one(executor).await?;
        Ok(Launch { claimed: row.try_get("claimed")?, ..launch_of(&row)? })
    }

    /// The same, in a transaction of any session, without claiming anything.
    pub(super) async fn launch_any(
        &self,
        executor: impl PgExecutor<'_>,
        messages: &[impl Serialize + Sync],
    ) -> sqlx::Result<Launch> {
        let launch = sqlx::query(self.sql.message_launch_any.clone()).bind(Json(messages));
        // The transaction may be one of the user, in which names may be taken.
        let launch = launch.persistent(self.sessions.keeps_statements());
        launch_of(&launch.fetch_one(executor).await?)
    }

    /// Whether the role may write messages and runs itself; otherwise it launches by the function that has the right.
    async fn may_write(&self) -> sqlx::Result<bool> {
        let ask = || sqlx::query_scalar(self.sql.role_writes.clone()).one(&self.sessions);
        self.writes.get_or_try_init(ask).await.copied()
    }

    /// The rights that a worker needs and the role lacks.
    pub(crate) async fn lacking_rights(&self) -> sqlx::Result<Vec<String>> {
        sqlx::query_scalar(self.sql.role_lacks.clone()).all(&self.sessions).await
    }

    /// The same, in a transaction of its own.
    pub(crate) async fn launch_alone(&self, messages: &[Launched]) -> sqlx::Result<Launch> {
        // Asked before a connection is held.
        self.may_write().await?;
        if is_bulky(messages) {
            return self.launch_in_parts(messages).await;
        }
        self.sessions.run(async |session| self.launch(session, messages).await).await
    }

    /// How far a root message is.
    pub(crate) async fn standing(&self, root: Uuid, message: Uuid) -> sqlx::Result<Standing> {
        let rows = sqlx::query(self.sql.message_standing.clone())
            .bind(root)
            .bind(message)
            .all(&self.sessions)
            .await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let handlers = rows.iter().map(HandlerOutcome::from_row).filter_map(Result::transpose);
        Ok(Standing {
            emitted: row.try_get("emitted")?,
            unfinished: row.try_get("unfinished")?,
            handlers: handlers.collect::<Result<_, _>>()?,
        })
    }

    /// The message that started a hierarchy.
    pub(crate) async fn root_message(&self, root: Uuid) -> sqlx::Result<Option<Uuid>> {
        sqlx::query_scalar(self.sql.message_of_root.clone()).bind(root).first(&self.sessions).await
    }

    /// The runs of a hierarchy, parents before their children; of a row that cannot be read the reason.
    pub(crate) async fn tree(&self, message: Uuid, extent: Extent) -> sqlx::Result<TreeRows> {
        let stored = |bound: Option<usize>| bound.map(|bound| i32::try_from(bound).unwrap_or(i32::MAX - 1));
        let mut tx = self.sessions.begin_with(READ_TREE).await?;
        let rows = sqlx::query(self.sql.run_tree.clone())
            .bind(message)
            .bind(stored(extent.depth))
            .bind(stored(extent.runs))
            .fetch_all(&mut *tx)
            .await?;
        tx.rollback().await?;
        let has_more = rows.iter().any(|row| row.try_get("has_more").unwrap_or_default());
        Ok(TreeRows::new(rows.iter().map(RunRow::from_row).collect(), has_more, extent))
    }
}
