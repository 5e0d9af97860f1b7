//! The messages and errors that most scenarios use.

use scoop::prelude::*;

/// The root message of most scenarios.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
pub(crate) struct Root;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic")]
pub(crate) struct Child;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic-2")]
pub(crate) struct Child2;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "grandchild-topic")]
pub(crate) struct Grandchild;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "finally-topic")]
pub(crate) struct Finally;

/// The error of the failing steps of the scenarios.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RuntimeException(pub(crate) &'static str);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct IllegalStateException(pub(crate) &'static str);

/// The failure of most of them.
pub(crate) const SIMULATED: RuntimeException = RuntimeException("Simulated failure to test rollback");
