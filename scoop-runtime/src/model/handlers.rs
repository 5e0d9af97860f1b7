//! The handlers that are registered, and those that are gone.

use std::time::SystemTime;

use serde::Serialize;

use crate::HandlerLimits;
use crate::model::json;

/// A handler to which messages are delivered, whether or not a process with it is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RegisteredHandler {
    /// The topic that it is subscribed to.
    pub topic: String,
    /// The saga.
    pub handler: String,
    /// The time of its registration, or of the latest one after it was retired.
    #[serde(serialize_with = "json::time")]
    pub since: SystemTime,
    /// The service of the program that has started last with it; `None` if none has.
    pub service: Option<String>,
    /// The limits of the saga.
    pub limits: HandlerLimits,
}

/// A handler that was retired, since no living process has it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoneHandler {
    pub(crate) topic: String,
    pub(crate) handler: String,
    pub(crate) service: String,
}
