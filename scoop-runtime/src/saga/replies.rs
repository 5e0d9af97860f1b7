//! The typed replies of the children of a run.

use scoop_core::{Message, Stored};
use serde_json::Value;
use uuid::Uuid;

use crate::RuntimeError;
use crate::error::ErrorKind;
use crate::model::children::Child;
use crate::saga::shape;

/// A reply of a handler.
///
/// The outcome of that handler is always [`ChildOutcome::Committed`](crate::ChildOutcome::Committed). Replies of other
/// handlers are left out: their effects do not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply<R> {
    /// The saga that replied.
    pub handler: String,
    /// The message that it replies to.
    pub message_id: Uuid,
    /// The value of the reply.
    pub value: R,
}

/// Decodes the replies of these children to an `M`. Fails if one is of another type.
pub(crate) fn replies_of<M: Message>(children: Vec<Child>) -> Result<Vec<Reply<M::Reply>>, RuntimeError> {
    let each = children.into_iter().flat_map(|Child { handler, message_id, replies, .. }| {
        replies.into_iter().map(move |reply| (handler.clone(), message_id, reply))
    });
    let read = |(handler, message_id, reply): (_, _, Value)| match M::Reply::read_stored(&reply) {
        Ok(value) => Ok(Reply { handler, message_id, value }),
        Err(source) => Err(RuntimeError::from(ErrorKind::ReplyMismatch {
            saga: handler,
            message: message_id,
            expected: std::any::type_name::<M::Reply>(),
            stored: shape::of_stored(&reply),
            shape: shape::outermost::<M::Reply>(),
            source,
        })),
    };
    each.map(read).collect()
}
