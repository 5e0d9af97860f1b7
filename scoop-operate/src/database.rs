//! The database of a program, with the statements of this crate.

use std::ops::Deref;

use scoop_runtime::internal::{Attempt, Retries, Tables};
use sqlx::SqlStr;

use crate::OperateError;
use crate::error::failed;
use crate::statements::complete;

/// The tables of a program, and the texts of statements for their schema.
pub(crate) struct Database(pub(crate) Tables);

impl Deref for Database {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.0
    }
}

impl Database {
    /// The text of a statement.
    pub(crate) fn text(&self, statement: &str) -> SqlStr {
        self.qualify(&complete(statement))
    }

    /// Begins an operation with retries.
    pub(crate) fn trial(&self) -> Retries {
        Retries::new(self.retry_for)
    }

    /// Begins a read of rows that may be many. Such reads take turns.
    pub(crate) fn reading(&self) -> Retries {
        self.trial().reading(Some(self.sessions().read_permits()))
    }

    /// Retries a short look.
    pub(crate) async fn retrying<T: Send, F>(
        &self,
        doing: &'static str,
        read: impl FnMut(Attempt) -> F,
    ) -> Result<T, OperateError>
    where
        F: Future<Output = sqlx::Result<T>> + Send,
    {
        self.trial().run(read).await.map_err(failed(doing))
    }

    /// Retries a read of rows that may be many.
    pub(crate) async fn read_retrying<T: Send, F>(
        &self,
        doing: &'static str,
        read: impl FnMut(Attempt) -> F,
    ) -> Result<T, OperateError>
    where
        F: Future<Output = sqlx::Result<T>> + Send,
    {
        self.reading().run(read).await.map_err(failed(doing))
    }
}
