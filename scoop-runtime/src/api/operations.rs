//! What operators ask of a program on either store. The crate for operators has methods for these, with their documentation.

use futures_util::future::FutureExt;
use uuid::Uuid;

pub use super::command::possible_key;
pub use super::entity_events::entity_events;
pub use super::find_by_key::find_topic_by_key;
pub use super::handle::trigger_named;
pub use super::signal::check_signal;
use crate::model::retention::Retention;
use crate::model::subscribed_saga::{MessageSettings, SubscribedSaga};
use crate::store::HandlerList;
use crate::tree::TreeBounds;
use crate::util::payload::check_topic;
use crate::util::retries::GivenUp;
use crate::{HierarchyId, Intervention, RuntimeError, Scoop};

/// `scoop_operate::Runs::joined`.
pub fn joined(
    scoop: &Scoop,
    message: Uuid,
) -> impl Future<Output = Result<Vec<HierarchyId>, RuntimeError>> + Send {
    async move {
        let roots = scoop.read_retrying(|_| scoop.store().joined(message)).await;
        let roots = roots.map_err(GivenUp::error("a joined hierarchy was looked up"))?;
        Ok(roots.into_iter().map(HierarchyId::from).collect())
    }
    .boxed()
}

/// `scoop_operate::Failures::interventions`.
pub fn interventions(
    scoop: &Scoop,
    hierarchy: impl Into<HierarchyId>,
) -> impl Future<Output = Result<Vec<Intervention>, RuntimeError>> + Send {
    let root = hierarchy.into().uuid();
    async move {
        let read = |_| scoop.store().interventions_of(root, None, TreeBounds::default());
        let interventions = scoop.read_retrying(read).await;
        let interventions = interventions.map_err(GivenUp::error("interventions were looked up"))?;
        if interventions.is_empty() {
            // There was no intervention, or there is no such hierarchy.
            scoop.root_message(root).await?;
        }
        Ok(interventions.into_iter().map(|(intervention, _)| intervention).collect())
    }
    .boxed()
}

/// `scoop_operate::Handlers::register`.
pub fn register_handler(
    scoop: &Scoop,
    topic: impl Into<String>,
    handler: impl Into<String>,
) -> impl Future<Output = Result<(), RuntimeError>> + Send {
    let (topic, handler) = (topic.into(), handler.into());
    async move {
        check_topic(&topic, "operate().handlers().register")?;
        let of_topic = HandlerList { topic: Some(topic.clone()), ..HandlerList::default() };
        let registered = scoop.retrying(|_| scoop.store().list_handlers(&of_topic)).await;
        let registered = registered.map_err(GivenUp::error("the handlers were listed"))?;
        if registered.iter().any(|it| it.handler == handler) {
            return Ok(());
        }
        let handler = SubscribedSaga { topic, handler, was: vec![], settings: MessageSettings::default() };
        let register = |_| scoop.store().register(std::slice::from_ref(&handler), Retention::forever());
        scoop.retrying(register).await.map_err(GivenUp::error("a handler was registered"))
    }
    .boxed()
}
