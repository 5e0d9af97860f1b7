//! Lists with a limit, such as of failed rollbacks or of ended pauses.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use scoop_runtime::internal::FetchExt as _;
use sqlx::postgres::PgRow;

use crate::OperateError;
use crate::cursor::ListCursor;
use crate::database::Database;

/// The default limit of a list.
const LIMIT_DEFAULT: u32 = 100;

const LIMIT_MAX: u32 = 1_000;

/// An entry of a [`ListRequest`].
pub trait ListItem: Sized + Send + 'static {
    #[doc(hidden)]
    const STATEMENT: &'static str;

    /// What was done when the database failed.
    #[doc(hidden)]
    const DOING: &'static str;

    /// Whether the statement begins with the parameters of a position.
    #[doc(hidden)]
    const IS_PAGED: bool = false;

    /// The parameters after the limit.
    #[doc(hidden)]
    const FURTHER: &'static [i64] = &[];

    #[doc(hidden)]
    fn from_row(row: &PgRow) -> sqlx::Result<Self>;
}

/// An entry of a [`ListRequest`] that can be read page by page.
pub trait PagedListItem: ListItem {
    /// The position of the entry in the list: its time as stored, and its run. The fields of an entry may have another time,
    /// since Rust does not have all times of the server.
    #[doc(hidden)]
    fn position(&self) -> ListCursor;
}

/// A list about to be read. Await it.
#[must_use = "nothing is read before this is awaited"]
pub struct ListRequest<T> {
    database: Arc<Database>,
    after: Option<ListCursor>,
    limit: u32,
    of: PhantomData<fn() -> T>,
}

impl<T: ListItem> ListRequest<T> {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { database, after: None, limit: LIMIT_DEFAULT, of: PhantomData }
    }

    /// Sets the maximum number of entries, by default 100 and at most 1,000.
    pub fn limit(mut self, entries: u32) -> Self {
        self.limit = bounded(entries);
        self
    }

    async fn read(self) -> Result<Vec<T>, OperateError> {
        let Self { database, after, limit, .. } = &self;
        let text = database.text(T::STATEMENT);
        let entries = database.read_retrying(T::DOING, |_| {
            let mut query = sqlx::query(text.clone());
            if T::IS_PAGED {
                let (time, id) = after.map(|ListCursor(position)| position).unzip();
                query = query.bind(time).bind(id);
            }
            query = T::FURTHER.iter().fold(query.bind(i64::from(*limit)), |query, it| query.bind(*it));
            async move { query.all(database.sessions()).await?.iter().map(T::from_row).collect() }
        });
        entries.await
    }
}

impl<T: PagedListItem> ListRequest<T> {
    /// Reads only the entries after this one. With the last entry of a list, this is the next page.
    pub fn after(mut self, entry: &T) -> Self {
        self.after = Some(entry.position());
        self
    }

    /// As [`after`](Self::after), by the [cursor](crate::FailedRollback::cursor) of the entry.
    pub fn after_cursor(mut self, cursor: impl Into<Option<ListCursor>>) -> Self {
        self.after = cursor.into();
        self
    }
}

impl<T: ListItem> IntoFuture for ListRequest<T> {
    type Output = Result<Vec<T>, OperateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

fn bounded(entries: u32) -> u32 {
    entries.min(LIMIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::bounded;

    #[test]
    fn page_has_a_thousand_entries_at_most() {
        assert_eq!([0, 1, 1_000, 1_001, u32::MAX].map(bounded), [0, 1, 1_000, 1_000, 1_000]);
    }
}
