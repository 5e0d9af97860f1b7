//! Messages, values and entities, for operators: without the types of the program.

use futures_util::future::{BoxFuture, FutureExt};

use super::scoop::Scoop;
use crate::find::{ContentsKey, Redaction, StoredContents};
use crate::util::patience::GivenUp;
use crate::{Content, EntityContents, EntityEventContents, RunContents, RunSummary, RuntimeError};

/// The maximum number of values of a run.
const VALUES_MAX: usize = 50;

/// The maximum number of events of an entity on a page.
const EVENTS_MAX: u32 = 50;

/// The number of keys in a list of entities.
const KEYS_MAX: u32 = 50;

/// The maximum number of names of entities.
const NAMES_MAX: u32 = 1_000;

impl Scoop {
    /// The message of a run, its context, the outputs of its steps and its replies; of a run that went on anew those of its
    /// newest execution. Up to 50 values, each of up to 64 KiB.
    ///
    /// Fields that a message type [redacts](scoop_core::Message::REDACTED) are redacted under this name everywhere: also in
    /// outputs, in contexts, and in messages of other types.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// for run in scoop.runs().handler("checkout").await?.runs {
    ///     let contents = scoop.contents(&run).await?;
    ///     if let Some(message) = contents.message {
    ///         println!("{message}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn contents(&self, run: &RunSummary) -> BoxFuture<'static, Result<RunContents, RuntimeError>> {
        let (scoop, run) = (self.clone(), [ContentsKey::from(run)]);
        async move {
            let redaction = scoop.redaction().await?;
            let contents = scoop.stored_contents(&run, VALUES_MAX + 1).await?.pop().unwrap_or_default();
            Ok(RunContents::new(contents, &redaction, VALUES_MAX))
        }
        .boxed()
    }

    /// The messages of these runs, in their order, by one query. Each is `None` if it is missing; otherwise it is as in
    /// [`Scoop::contents`].
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// let runs = scoop.runs().handler("checkout").await?.runs;
    /// for message in scoop.messages_of(&runs).await?.into_iter().flatten() {
    ///     println!("{message}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn messages_of(
        &self,
        runs: &[RunSummary],
    ) -> BoxFuture<'static, Result<Vec<Option<Content>>, RuntimeError>> {
        let (scoop, runs) = (self.clone(), runs.iter().map(ContentsKey::from).collect::<Vec<_>>());
        async move {
            let redaction = scoop.redaction().await?;
            let contents = scoop.stored_contents(&runs, 0).await?;
            Ok(contents.into_iter().map(|it| RunContents::new(it, &redaction, 0).message).collect())
        }
        .boxed()
    }

    async fn stored_contents(
        &self,
        runs: &[ContentsKey],
        values_max: usize,
    ) -> Result<Vec<StoredContents>, RuntimeError> {
        let contents = self.read_patiently(|_| self.store().run_contents(runs, values_max)).await;
        contents.map_err(GivenUp::error("the contents of runs were looked up"))
    }

    /// The names of all entities, in their order; up to 1,000.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// for name in scoop.entity_names().await? {
    ///     println!("{name}: {:?}", scoop.entity_keys(&name, "").await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn entity_names(&self) -> BoxFuture<'_, Result<Vec<String>, RuntimeError>> {
        async move {
            let names = self.read_patiently(|_| self.store().entity_names(NAMES_MAX)).await;
            names.map_err(GivenUp::error("entities were listed"))
        }
        .boxed()
    }

    /// The keys of the entities of this name that have events, in their order: up to 50, after this one.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// let mut after = String::new();
    /// loop {
    ///     let keys = scoop.entity_keys("stock", &after).await?;
    ///     let Some(last) = keys.last() else { return Ok(()) };
    ///     println!("{keys:?}");
    ///     after = last.clone();
    /// }
    /// # }
    /// ```
    pub fn entity_keys(
        &self,
        name: &str,
        after: &str,
    ) -> BoxFuture<'static, Result<Vec<String>, RuntimeError>> {
        let (scoop, name, after) = (self.clone(), name.to_owned(), after.to_owned());
        async move {
            let keys =
                scoop.read_patiently(|_| scoop.store().named_entity_keys(&name, &after, KEYS_MAX)).await;
            keys.map_err(GivenUp::error("entities were listed"))
        }
        .boxed()
    }

    /// The version and the state of an entity, and a page of its events after this version: up to 50, oldest first. `None`
    /// if there is no such entity. Redacted as [`Scoop::contents`].
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// if let Some(stock) = scoop.entity_contents("stock", "7", 0).await? {
    ///     println!("version {} with {} events", stock.version, stock.events.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn entity_contents(
        &self,
        name: &str,
        key: &str,
        after: u64,
    ) -> BoxFuture<'static, Result<Option<EntityContents>, RuntimeError>> {
        let (scoop, name, key) = (self.clone(), name.to_owned(), key.to_owned());
        async move {
            let failed = || GivenUp::error("an entity was looked up");
            let redaction = scoop.redaction().await?;
            let entity =
                scoop.read_patiently(|_| scoop.store().entity_row(&name, &key)).await.map_err(failed())?;
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let limit = EVENTS_MAX + 1;
            let read = |_| scoop.store().entity_event_rows(&name, &key, after, limit);
            let mut events = scoop.read_patiently(read).await.map_err(failed())?;
            if entity.is_none() && events.is_empty() {
                return Ok(None);
            }
            let entity = entity.unwrap_or_default();
            let is_more = events.len() > EVENTS_MAX as usize;
            events.truncate(EVENTS_MAX as usize);
            let events = events.into_iter().map(|event| EntityEventContents::new(event, &redaction));
            let events: Vec<_> = events.collect();
            Ok(Some(EntityContents {
                version: u64::try_from(entity.version).unwrap_or(0),
                state: entity.state.map(|state| redaction.shown(state)),
                next: events.last().filter(|_| is_more).map(|last| last.version),
                events,
            }))
        }
        .boxed()
    }

    async fn redaction(&self) -> Result<Redaction, RuntimeError> {
        let fields = self.read_patiently(|_| self.store().redacted_fields()).await;
        fields.map(Redaction).map_err(GivenUp::error("redacted fields were looked up"))
    }
}
