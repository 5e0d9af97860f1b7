//! The messages, contexts and values of runs: without the types of the program.

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::read_output_name;
use scoop_runtime::internal::FetchExt as _;
use serde::Serialize;
use serde_json::Value;
use sqlx::Row;
use uuid::Uuid;

use super::{RunSummary, Runs};
use crate::OperateError;
use crate::contents::{CONTENT_BYTES_MAX, Content, Redaction, StoredContent};
use crate::database::Database;
use crate::statements::RUN_CONTENTS;

/// The maximum number of values of a run.
const VALUES_MAX: usize = 50;

impl Runs {
    /// The message of a run, its context, the outputs of its steps and its replies; of a run that continued as new those of its
    /// newest execution. Up to 50 values, each of up to 64 KiB.
    ///
    /// Fields that a message type [redacts](scoop_core::Message::REDACTED) are redacted under this name everywhere: also in
    /// outputs, in contexts, and in messages of other types.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// for run in scoop.operate().runs().list().handler("checkout").await?.runs {
    ///     let contents = scoop.operate().runs().contents(&run).await?;
    ///     if let Some(message) = contents.message {
    ///         println!("{message}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn contents(&self, run: &RunSummary) -> BoxFuture<'static, Result<RunContents, OperateError>> {
        let (database, run) = (self.operate.database(), [ContentsKey::from(run)]);
        async move {
            let redaction = database.redaction().await?;
            let contents = database.stored_contents(&run, VALUES_MAX + 1).await?.pop().unwrap_or_default();
            Ok(RunContents::new(contents, &redaction, VALUES_MAX))
        }
        .boxed()
    }

    /// The messages of these runs, in their order, by one query. Each is `None` if it is missing; otherwise it is as in
    /// [`Runs::contents`](crate::Runs::contents).
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// ```no_run
    /// # use scoop_operate::OperateExt as _;
    /// # use scoop_runtime::Scoop;
    /// # async fn example(scoop: Scoop) -> Result<(), scoop_operate::OperateError> {
    /// let runs = scoop.operate().runs().list().handler("checkout").await?.runs;
    /// for message in scoop.operate().runs().messages(&runs).await?.into_iter().flatten() {
    ///     println!("{message}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn messages(
        &self,
        runs: &[RunSummary],
    ) -> BoxFuture<'static, Result<Vec<Option<Content>>, OperateError>> {
        let (database, runs) =
            (self.operate.database(), runs.iter().map(ContentsKey::from).collect::<Vec<_>>());
        async move {
            let redaction = database.redaction().await?;
            let contents = database.stored_contents(&runs, 0).await?;
            Ok(contents.into_iter().map(|it| RunContents::new(it, &redaction, 0).message).collect())
        }
        .boxed()
    }
}

impl Database {
    async fn stored_contents(
        &self,
        runs: &[ContentsKey],
        values_max: usize,
    ) -> Result<Vec<StoredContents>, OperateError> {
        self.read_retrying("the contents of runs were looked up", |_| self.run_contents(runs, values_max))
            .await
    }

    async fn run_contents(
        &self,
        runs: &[ContentsKey],
        values_max: usize,
    ) -> sqlx::Result<Vec<StoredContents>> {
        let rows = sqlx::query(self.text(RUN_CONTENTS))
            .bind(runs.iter().map(|run| run.run).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.message).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.handler.clone()).collect::<Vec<_>>())
            .bind(i64::try_from(values_max).unwrap_or(i64::MAX))
            .bind(i32::try_from(CONTENT_BYTES_MAX).unwrap_or(i32::MAX))
            .all(self.sessions())
            .await?;
        let mut all: Vec<_> = runs.iter().map(|_| StoredContents::default()).collect();
        for row in &rows {
            let nth = usize::try_from(row.try_get::<i64, _>("nth")? - 1).ok();
            let Some(contents) = nth.and_then(|nth| all.get_mut(nth)) else { continue };
            let Some(content) = StoredContent::from_row(row)? else { continue };
            match row.try_get("kind")? {
                "message" => contents.message = Some(content),
                "context" => contents.context = Some(content),
                _ => contents.values.push((row.try_get("name")?, content)),
            }
        }
        Ok(all)
    }
}

/// The messages, values and context of a run: the result of [`Runs::contents`](crate::Runs::contents).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunContents {
    /// The message, of a run that continued as new that of its newest execution; `None` if it is missing.
    pub message: Option<Content>,
    /// The cooperation context in the newest event of the run, if it has one.
    pub context: Option<Content>,
    /// The outputs of its steps and its replies, in the order of their stored names.
    pub values: Vec<RunValue>,
    /// Whether `values` has all of them.
    #[serde(rename = "complete")]
    pub is_complete: bool,
}

/// An output of a step, or a reply.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunValue {
    /// The step that returned it, by its stored name; `None` for a reply.
    pub step: Option<String>,
    /// How many steps the run had completed before that one.
    pub position: Option<u32>,
    /// The stored name.
    pub name: String,
    /// The value.
    #[serde(flatten)]
    pub value: Content,
}

/// A run, by what its contents are stored under.
#[derive(Clone, Debug)]
pub(crate) struct ContentsKey {
    pub(crate) run: Uuid,
    /// The message of its first execution.
    pub(crate) message: Uuid,
    pub(crate) handler: String,
}

impl From<&RunSummary> for ContentsKey {
    fn from(run: &RunSummary) -> Self {
        Self { run: run.run.uuid(), message: run.message_id, handler: run.handler.clone() }
    }
}

/// The contents of a run as they are stored. A value that is too large is the number of its bytes.
#[derive(Debug, Default)]
pub(crate) struct StoredContents {
    pub(crate) message: Option<StoredContent>,
    pub(crate) context: Option<StoredContent>,
    pub(crate) values: Vec<(String, StoredContent)>,
}

impl RunContents {
    /// Up to `values_max` values; there are more if one more was read.
    pub(crate) fn new(stored: StoredContents, redaction: &Redaction, values_max: usize) -> Self {
        let StoredContents { message, context, values } = stored;
        let is_complete = values.len() <= values_max;
        let values = values.into_iter().take(values_max).map(|(name, value)| {
            let (step, position) = read_output_name(&name).unzip();
            RunValue { step: step.map(str::to_owned), position, value: redaction.shown(value), name }
        });
        let is_empty = |value: &StoredContent| matches!(value, StoredContent::Read(Value::Object(all)) if all.is_empty());
        Self {
            message: message.map(|message| redaction.shown(message)),
            context: context.filter(|context| !is_empty(context)).map(|context| redaction.shown(context)),
            values: values.collect(),
            is_complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_outputs_or_replies_and_their_number_is_limited() {
        let value = |name: &str| (name.to_owned(), StoredContent::of(json!(1)));
        let stored = || StoredContents {
            values: vec![value("Output of pay#0000000002"), value("Receipt")],
            context: Some(StoredContent::of(json!({}))),
            ..StoredContents::default()
        };
        let all = RunContents::new(stored(), &Redaction::default(), 2);
        assert!(all.is_complete && all.context.is_none());
        assert_eq!((all.values[0].step.as_deref(), all.values[0].position), (Some("pay"), Some(2)));
        assert_eq!((all.values[1].step.as_deref(), &*all.values[1].name), (None, "Receipt"));
        assert!(!RunContents::new(stored(), &Redaction::default(), 1).is_complete);
    }
}
