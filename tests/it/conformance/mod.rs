//! The scenarios of structured cooperation, named as in the catalogue, with the rows and the
//! calls that it lists. A scenario is a module with its sagas and a test.

mod gt;
mod hp;
mod if_;
mod ja;
mod lp;
mod me;
mod mq;
mod rb;

use scoop::prelude::*;

/// What a scenario is launched with.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Root;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic")]
struct Child;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "child-topic-2")]
struct Child2;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "grandchild-topic")]
struct Grandchild;

/// What the steps of the catalogue throw.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RuntimeException(&'static str);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct IllegalStateException(&'static str);

/// How most of them fail.
const SIMULATED: RuntimeException = RuntimeException("Simulated failure to test rollback");
