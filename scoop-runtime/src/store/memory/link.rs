//! What stands between a process and its database: nothing, but in a simulation whatever can go wrong.

#[cfg(feature = "simulation")]
pub use self::simulated::Link;
#[cfg(feature = "simulation")]
pub(super) use self::simulated::Linked;

/// Nothing.
#[cfg(not(feature = "simulation"))]
#[derive(Clone, Default)]
pub(super) struct Linked(());

#[cfg(not(feature = "simulation"))]
impl Linked {
    #[expect(clippy::unused_async, reason = "a simulation waits here")]
    pub(super) async fn before(&self, _: &'static str) -> sqlx::Result<()> {
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "a simulation waits here")]
    pub(super) async fn after(&self, _: &'static str) -> sqlx::Result<()> {
        Ok(())
    }

    #[expect(clippy::unused_async, reason = "a simulation waits here")]
    pub(super) async fn heard(&self) -> u32 {
        1
    }
}

#[cfg(feature = "simulation")]
mod simulated {
    use std::io;
    use std::sync::Arc;

    use futures_util::future::BoxFuture;

    /// The way of one process to a database in memory, and all that can go wrong on it.
    ///
    /// Each operation asks [`before`](Link::before), is carried out, all of it at one moment, and asks
    /// [`after`](Link::after). Both may take as long as they like, by tokio's clock: then the process waits.
    ///
    /// * An error of `before`: the operation was not carried out, and the process learns of a lost connection.
    /// * An error of `after`: it was carried out, and the process learns of a lost connection.
    /// * A future that never ends: the process gets no answer. If from some moment on none of its
    ///   operations ends, the process is dead: each of its tasks comes as far as its next operation. Its
    ///   session does not end by that: whoever kills a process [cuts](crate::simulation::Process::cut)
    ///   that as well, at once or later. What the code of a step does besides is its own affair: one that has effects
    ///   elsewhere has to ask whether its process lives.
    ///
    /// Operations are named as the functions of the store: `claim`, `settle`, `launch`, `wake`, ...
    ///
    /// Cutting the session of a process that goes on makes it a zombie: the others take it for dead,
    /// and take over what it had; it opens another session, and lives again.
    pub trait Link: Send + Sync + 'static {
        /// Before an operation is carried out.
        fn before(&self, operation: &'static str) -> BoxFuture<'static, io::Result<()>>;

        /// After it was carried out, before the process learns of it.
        fn after(&self, operation: &'static str) -> BoxFuture<'static, io::Result<()>>;

        /// A notification of another process arrives: how often this one is to hear of it. None is a lost
        /// notification, two a duplicate; those that come later wait for this answer.
        fn heard(&self) -> BoxFuture<'static, u32>;
    }

    /// A link, if there is one.
    #[derive(Clone, Default)]
    pub(in super::super) struct Linked(Option<Arc<dyn Link>>);

    impl Linked {
        pub(in super::super) fn through(link: Arc<dyn Link>) -> Self {
            Self(Some(link))
        }

        pub(in super::super) async fn before(&self, operation: &'static str) -> sqlx::Result<()> {
            match &self.0 {
                Some(link) => link.before(operation).await.map_err(sqlx::Error::Io),
                None => Ok(()),
            }
        }

        pub(in super::super) async fn after(&self, operation: &'static str) -> sqlx::Result<()> {
            match &self.0 {
                Some(link) => link.after(operation).await.map_err(sqlx::Error::Io),
                None => Ok(()),
            }
        }

        pub(in super::super) async fn heard(&self) -> u32 {
            match &self.0 {
                Some(link) => link.heard().await,
                None => 1,
            }
        }
    }
}
