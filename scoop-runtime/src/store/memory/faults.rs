//! The link between a process and its database: it does nothing, except in a simulation, which injects faults.

#[cfg(feature = "simulation")]
pub use self::simulated::FaultLink;
#[cfg(feature = "simulation")]
pub(super) use self::simulated::Faults;

#[cfg(not(feature = "simulation"))]
#[derive(Clone, Default)]
pub(super) struct Faults(());

#[cfg(not(feature = "simulation"))]
impl Faults {
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

    /// The link of one process to a database in memory, with its faults.
    ///
    /// Each operation calls [`before`](FaultLink::before), is carried out at one moment, and calls
    /// [`after`](FaultLink::after). Both may take any time, by tokio's clock: then the process waits.
    ///
    /// * An error of `before`: the operation was not carried out, and the process sees a lost connection.
    /// * An error of `after`: it was carried out, and the process sees a lost connection.
    /// * A future that never ends: the process gets no answer. If from some moment on none of its operations ends, the
    ///   process is dead: each of its tasks stops at its next operation. Its session does not end by that: a simulation
    ///   that kills a process [disconnects](crate::simulation::Process::disconnect) the session as well, at once or later. Other
    ///   effects of a step are not stopped: its code has to ask whether its process lives.
    ///
    /// Operations are named as the functions of the store: `claim`, `settle`, `launch`, `wake`, ...
    ///
    /// Cutting the session of a process that continues makes it a zombie: the others take it for dead, and take over
    /// its runs. It opens another session, and lives again.
    pub trait FaultLink: Send + Sync + 'static {
        /// Called before an operation is carried out.
        fn before(&self, operation: &'static str) -> BoxFuture<'static, io::Result<()>>;

        /// Called after it was carried out, before the process learns of it.
        fn after(&self, operation: &'static str) -> BoxFuture<'static, io::Result<()>>;

        /// Called when a notification of another process arrives; returns how often this process receives it. Zero is a
        /// lost notification, two is a duplicate; later ones wait for this answer.
        fn heard(&self) -> BoxFuture<'static, u32>;
    }

    #[derive(Clone, Default)]
    pub(in super::super) struct Faults(Option<Arc<dyn FaultLink>>);

    impl Faults {
        pub(in super::super) fn through(link: Arc<dyn FaultLink>) -> Self {
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
