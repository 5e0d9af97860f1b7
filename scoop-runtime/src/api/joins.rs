//! The messages that wait to be joined with others, for operators.

use futures_util::future::FutureExt;
use uuid::Uuid;

use crate::util::retries::GivenUp;
use crate::{HierarchyId, RuntimeError, Scoop, WaitingMember};

/// The maximum number of messages in a list.
const LIMIT: i64 = 1_000;

impl Scoop {
    /// The hierarchies of the sets that this message is part of: one for each saga that joins it, none before its set is
    /// complete.
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
    /// # use scoop_runtime::{Handle, RuntimeError, Scoop};
    /// # async fn example(scoop: Scoop, payment: Handle) -> Result<(), RuntimeError> {
    /// for shipment in scoop.joined(payment.message_id()).await? {
    ///     println!("{}", scoop.find(shipment).await?.wait().await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn joined(
        &self,
        message: Uuid,
    ) -> impl Future<Output = Result<Vec<HierarchyId>, RuntimeError>> + Send {
        async move {
            let roots = self.read_retrying(|_| self.store().joined(message)).await;
            let roots = roots.map_err(GivenUp::error("a joined hierarchy was looked up"))?;
            Ok(roots.into_iter().map(HierarchyId::from).collect())
        }
        .boxed()
    }

    /// The messages that wait for the others of their set, longest first: at most 1,000. See the guide on
    /// `#[subscribes(join(..))]`.
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
    /// for waiting in scoop.waiting_members().await? {
    ///     println!("{} for {} since {:?}", waiting.topic, waiting.key, waiting.since);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn waiting_members(&self) -> impl Future<Output = Result<Vec<WaitingMember>, RuntimeError>> + Send {
        async move {
            let listed = self.read_retrying(|_| self.store().waiting_members(LIMIT)).await;
            listed.map_err(GivenUp::error("the waiting messages were listed"))
        }
        .boxed()
    }
}
