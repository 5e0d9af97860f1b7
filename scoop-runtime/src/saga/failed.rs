//! The message about failed runs: [`Failed`]. The function `scoop.send_failed` sends it (`0006_failures.sql`).
//!
//! A filter is a topic: a failure is launched on each of the four topics `scoop.failed`, `scoop.failed.<outcome>`,
//! `scoop.failed:<saga>` and `scoop.failed.<outcome>:<saga>` that has a handler. So subscriptions and claims know nothing of
//! filters.

use std::borrow::Cow;
use std::marker::PhantomData;

use scoop_core::{Definition, Message, TOPIC_BYTES_MAX};

use crate::Saga;
use crate::model::failed::Failed;

/// A message with filters.
#[diagnostic::on_unimplemented(
    message = "only `Failed` has filters, not `{Self}`",
    label = "this message has no filter",
    note = "write `#[subscribes({Self})]`, and ignore the others in the first step"
)]
pub trait FilteredMessage: Message {}

#[diagnostic::do_not_recommend]
impl FilteredMessage for Failed {}

/// The topic of the messages `M` that pass a filter.
pub const fn filtered<M: FilteredMessage>(topic: &'static str) -> &'static str {
    topic
}

/// The topic of the failures of the saga `S`: with any outcome if `OUTCOME` is 0, else with the one at this position.
pub const fn failed_topic<S: Saga, const OUTCOME: usize>() -> &'static str {
    TopicOf::<S, OUTCOME>::TOPIC.text()
}

struct TopicOf<S, const OUTCOME: usize>(PhantomData<S>);

impl<S: Saga, const OUTCOME: usize> TopicOf<S, OUTCOME> {
    const DEFINITION: &'static Definition = &S::DEFINITION;

    const TOPIC: &'static ShortText = &ShortText::new(
        match OUTCOME {
            0 => "scoop.failed:",
            1 => "scoop.failed.rolled_back:",
            2 => "scoop.failed.rollback_failed:",
            _ => "scoop.failed.stuck:",
        },
        match &Self::DEFINITION.saga {
            Cow::Borrowed(name) => name,
            Cow::Owned(_) => panic!("the name of a saga is a constant"),
        },
    );
}

/// A text of a constant, as long as a topic may be.
struct ShortText {
    bytes: [u8; TOPIC_BYTES_MAX],
    length: usize,
}

impl ShortText {
    const fn new(prefix: &str, name: &str) -> Self {
        assert!(
            prefix.len() + name.len() <= TOPIC_BYTES_MAX,
            "the name of this saga is too long for a filter; handle the failures of all sagas, and ignore the others"
        );
        let (mut bytes, mut at) = ([0; TOPIC_BYTES_MAX], 0);
        while at < prefix.len() + name.len() {
            bytes[at] =
                if at < prefix.len() { prefix.as_bytes()[at] } else { name.as_bytes()[at - prefix.len()] };
            at += 1;
        }
        Self { bytes, length: at }
    }

    const fn text(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(text) => text,
            Err(_) => panic!("two texts are a text"),
        }
    }
}
