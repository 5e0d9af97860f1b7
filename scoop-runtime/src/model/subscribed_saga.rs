//! The sagas that messages are delivered to, and their names.

use scoop_core::{Definition, FindField, Message, RetentionTimes};

use crate::model::retention::Retention;

/// What a type of messages says about the storage of its messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageSettings {
    /// [`Message::RETENTION`].
    pub(crate) retention: scoop_core::RetentionTimes,
    /// [`Message::REDACTED`].
    pub(crate) redacted: Vec<&'static str>,
    /// [`Message::FIND_BY`].
    pub(crate) find_by: &'static [FindField],
}

impl MessageSettings {
    pub(crate) fn of<M: Message>() -> Self {
        Self { retention: M::RETENTION, redacted: M::REDACTED.to_vec(), find_by: M::FIND_BY }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Renamed {
    pub(crate) topic: String,
    pub(crate) name: String,
    pub(crate) own_name: String,
}

/// A saga that messages on a topic are delivered to.
#[derive(Clone, Debug)]
pub(crate) struct SubscribedSaga {
    pub(crate) topic: String,
    pub(crate) handler: String,
    /// Former names of the saga. No messages are delivered to them any more.
    pub(crate) was: Vec<String>,
    /// The settings of the type of the messages. Those of a command have the redacted fields of the events of its entity, too.
    pub(crate) settings: MessageSettings,
}

impl SubscribedSaga {
    #[cfg(test)]
    pub(crate) fn pairs(topics: &[String], handlers: &[String]) -> Vec<Self> {
        let pairs = topics.iter().zip(handlers);
        let subscription = |(topic, handler): (&String, &String)| {
            let (topic, handler) = (topic.clone(), handler.clone());
            Self { topic, handler, was: vec![], settings: MessageSettings::default() }
        };
        pairs.map(subscription).collect()
    }

    /// The times for which finished hierarchies are kept that start with one of its messages, in a program with these
    /// times.
    pub(crate) fn retention(&self, by_default: Retention) -> Retention {
        let RetentionTimes { committed, rolled_back } = self.settings.retention;
        let committed = committed.unwrap_or(by_default.committed);
        by_default.committed(committed).rolled_back(rolled_back.unwrap_or(by_default.rolled_back))
    }

    pub(crate) fn new(definition: &Definition, was: Vec<String>, settings: MessageSettings) -> Self {
        let (topic, handler) = (definition.topic.to_string(), definition.saga.to_string());
        Self { topic, handler, was, settings }
    }
}
