//! The messages and errors that most scenarios use.

use scoop::prelude::*;

/// The root message of most scenarios.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
pub struct Root;

/// The message of a child.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic")]
pub struct Child;

/// The message of another child.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic-2")]
pub struct Child2;

/// The message of a grandchild.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "grandchild-topic")]
pub struct Grandchild;

/// The message of a cleanup.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "finally-topic")]
pub struct Finally;

/// The error of the failing steps of the scenarios.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RuntimeException(pub &'static str);

/// Another error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct IllegalStateException(pub &'static str);

/// The failure of most of them.
pub const SIMULATED: RuntimeException = RuntimeException("Simulated failure to test rollback");
