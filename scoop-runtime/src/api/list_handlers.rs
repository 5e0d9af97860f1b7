//! Lists subscribed and retired handlers.

use std::future::IntoFuture;

use futures_util::future::{BoxFuture, FutureExt};

use crate::store::HandlerList;
use crate::util::patience::GivenUp;
use crate::{FormerHandler, RegisteredHandler, RuntimeError, Scoop};

/// A list of handlers about to be read. Await it.
///
/// ```no_run
/// # use scoop_runtime::{RuntimeError, Scoop};
/// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
/// let mut page = scoop.handlers().limit(100).await?;
/// while let Some(last) = page.last() {
///     println!("up to saga {} on {}", last.handler, last.topic);
///     page = scoop.handlers().after(&last.topic, &last.handler).limit(100).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone)]
pub struct ListHandlers {
    scoop: Scoop,
    part: HandlerList,
}

impl ListHandlers {
    /// Sets the maximum number of handlers; by default all are read.
    pub fn limit(mut self, handlers: u32) -> Self {
        self.part.limit = Some(handlers);
        self
    }

    /// Reads only the handlers after that of this topic and saga. With the last handler of a list, this is the next page.
    pub fn after(mut self, topic: impl Into<String>, saga: impl Into<String>) -> Self {
        self.part.after = (topic.into(), saga.into());
        self
    }

    /// Reads only the handlers whose topic or saga has this text in its name, with the same case. All names up to the last found
    /// one are compared.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// let invoices = scoop.handlers().named("invoice").limit(10).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn named(mut self, text: impl Into<String>) -> Self {
        self.part.named = text.into();
        self
    }

    /// Reads only the handlers of the topic of exactly this name.
    ///
    /// ```no_run
    /// # use scoop_runtime::{RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
    /// let has_handlers = !scoop.handlers().topic("orders.placed").limit(1).await?.is_empty();
    /// # Ok(())
    /// # }
    /// ```
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.part.topic = Some(name.into());
        self
    }

    /// Reads only the handlers of the saga of exactly this name, one for each of its topics.
    pub fn saga(mut self, name: impl Into<String>) -> Self {
        self.part.saga = Some(name.into());
        self
    }

    async fn read(self) -> Result<Vec<RegisteredHandler>, RuntimeError> {
        let Self { scoop, part } = &self;
        let listed = scoop.read_patiently(|_| scoop.store().listed_handlers(part)).await;
        listed.map_err(GivenUp::error("the handlers were listed"))
    }
}

impl IntoFuture for ListHandlers {
    type Output = Result<Vec<RegisteredHandler>, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

/// A list of retired handlers about to be read. Await it.
///
/// ```no_run
/// # use scoop_runtime::{RuntimeError, Scoop};
/// # async fn example(scoop: Scoop) -> Result<(), RuntimeError> {
/// let first = scoop.former_handlers().limit(100).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read before this is awaited"]
#[derive(Clone)]
pub struct ListFormerHandlers {
    scoop: Scoop,
    limit: Option<u32>,
}

impl ListFormerHandlers {
    /// Sets the maximum number of handlers; by default all are read.
    pub fn limit(mut self, handlers: u32) -> Self {
        self.limit = Some(handlers);
        self
    }

    async fn read(self) -> Result<Vec<FormerHandler>, RuntimeError> {
        let Self { scoop, limit } = &self;
        let former = scoop.read_patiently(|_| scoop.store().former_handlers(*limit)).await;
        former.map_err(GivenUp::error("the handlers were listed"))
    }
}

impl IntoFuture for ListFormerHandlers {
    type Output = Result<Vec<FormerHandler>, RuntimeError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.read().boxed()
    }
}

impl Scoop {
    /// The registered handlers, by topic and saga: those of all programs that ever started on this schema, unless they were
    /// [retired](Scoop::retire_handler). Messages are delivered to them. Await it, or choose a part before:
    /// [`limit`](ListHandlers::limit), [`after`](ListHandlers::after), [`named`](ListHandlers::named),
    /// [`topic`](ListHandlers::topic), [`saga`](ListHandlers::saga).
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
    /// for listed in scoop.handlers().await? {
    ///     println!("{} listens on {}; limits: {}", listed.handler, listed.topic, listed.limits);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn handlers(&self) -> ListHandlers {
        ListHandlers { scoop: self.clone(), part: HandlerList::default() }
    }

    /// The handlers that are not registered any more, by topic and saga: they were [retired](Scoop::retire_handler), or their
    /// sagas have other names now. Await it.
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
    /// for former in scoop.former_handlers().limit(100).await? {
    ///     println!("{former:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn former_handlers(&self) -> ListFormerHandlers {
        ListFormerHandlers { scoop: self.clone(), limit: None }
    }
}
