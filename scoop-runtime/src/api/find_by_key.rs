//! Lookup of a hierarchy by a unique key.

use futures_util::future::FutureExt;
use scoop_core::Message;

use crate::error::ErrorKind;
use crate::model::format::system_time;
use crate::store::NewMessage;
use crate::util::retries::GivenUp;
use crate::{Handle, RuntimeError, Scoop};

impl Scoop {
    /// The hierarchy of the message of this type that was launched with this [key](crate::Launch::unique).
    ///
    /// # Errors
    ///
    /// [`RuntimeError::is_not_found`] if none was launched with it; [`RuntimeError::key_valid_until`] if its hierarchy was deleted and
    /// the key is kept; or if the database fails.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(Serialize, Deserialize)]
    /// # struct OrderPlaced { order: u32 }
    /// # impl scoop_core::Message for OrderPlaced { const TOPIC: &'static str = "orders.placed"; type Reply = (); }
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// // Launched by another process with `.unique("order 7")`.
    /// let order = scoop.find_by_key::<OrderPlaced>("order 7").await?;
    /// println!("{}", order.wait().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_by_key<M: Message>(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Handle, RuntimeError>> + Send {
        find_topic_by_key(self, M::TOPIC, key)
    }
}

/// `scoop_operate::Runs::find_by_key`.
pub fn find_topic_by_key(
    scoop: &Scoop,
    topic: &str,
    key: &str,
) -> impl Future<Output = Result<Handle, RuntimeError>> + Send {
    let ids = NewMessage::unique_ids(topic, key);
    let found = scoop.find(ids.root);
    let (scoop, topic, key) = (scoop.clone(), topic.to_owned(), key.to_owned());
    async move {
        let found = found.await;
        if !found.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::NoSuchMessage { .. })) {
            return found;
        }
        // The id follows from the key, so it says nothing to the caller.
        let valid_until = scoop.retrying(|_| scoop.store().key_valid_until(ids.id)).await;
        match valid_until.map_err(GivenUp::error("a unique key was looked up"))? {
            Some(until) => {
                Err(RuntimeError::from(ErrorKind::RetainedKey { topic, key, until: system_time(until) }))
            }
            None => Err(RuntimeError::from(ErrorKind::NoSuchKey { topic, key })),
        }
    }
    .boxed()
}
