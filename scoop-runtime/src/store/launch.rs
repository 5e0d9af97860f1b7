//! Messages that a program launches.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use scoop_core::{Context, Direction, FindField, FindKind, FoundBy, Lineage, Message, Run, UnfitField};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::types::{ClaimKey, ClaimedRun, HierarchyFlags, timestamps};
use crate::RuntimeError;
use crate::completion::StartedAs;
use crate::error::ErrorKind;
use crate::util::ids;
use crate::util::payload::{measured, of_message};
use crate::util::retries::Attempt;

/// A message that starts a hierarchy of its own.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewMessage {
    pub(crate) id: Uuid,
    pub(crate) root: Uuid,
    pub(crate) topic: Cow<'static, str>,
    pub(crate) payload: Value,
    pub(super) context: Context,
    #[serde(with = "time::serde::rfc3339::option")]
    pub(super) due: Option<OffsetDateTime>,
    #[serde(serialize_with = "timestamps")]
    deadlines: Vec<OffsetDateTime>,
    /// The runs for which the launching worker has slots, by handler.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) local_runs: BTreeMap<String, Uuid>,
    /// The Rust type of the message, or the method that launches it, if the launch is refused without a handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) required: Option<&'static str>,
    /// The approximate size in bytes of JSON.
    #[serde(skip)]
    pub(crate) bytes: usize,
    /// The message may be in the database already.
    #[serde(skip)]
    pub(crate) is_unique: bool,
    /// By what its runs are found.
    #[serde(skip)]
    pub(super) found_by: Vec<FoundBy>,
}

/// Marks the messages of a repeated attempt as perhaps launched, and returns them.
pub(crate) fn mark_maybe_launched(messages: &mut [NewMessage], attempt: Attempt) -> &[NewMessage] {
    if attempt == Attempt::Repeat {
        messages.iter_mut().for_each(NewMessage::again);
    }
    messages
}

/// The name space of the ids of messages that may be launched only once.
const UNIQUE: Uuid = Uuid::from_u128(0x6d1f_46a2_0c5e_4e0b_9d0a_7b1b_5a3c_9e21);

/// The ids that follow from a topic and a key.
pub(crate) struct UniqueIds {
    pub(crate) id: Uuid,
    pub(crate) root: Uuid,
}

impl NewMessage {
    /// A message with fresh ids.
    pub(crate) fn new(topic: impl Into<Cow<'static, str>>, payload: Value, bytes: usize) -> Self {
        let (id, root) = (ids::now_v7(), ids::now_v7());
        let (context, deadlines, local_runs) = (Context::default(), vec![], BTreeMap::new());
        Self {
            id,
            root,
            topic: topic.into(),
            payload,
            context,
            due: None,
            deadlines,
            local_runs,
            required: None,
            bytes,
            is_unique: false,
            found_by: vec![],
        }
    }

    /// Derives the ids from the topic and the key, so that the message can be launched only once.
    pub(crate) fn unique(mut self, key: &str) -> Self {
        UniqueIds { id: self.id, root: self.root } = Self::unique_ids(&self.topic, key);
        self.is_unique = true;
        self
    }

    pub(crate) fn unique_ids(topic: &str, key: &str) -> UniqueIds {
        let namespace = Uuid::new_v5(&UNIQUE, topic.as_bytes());
        let id = Uuid::new_v5(&namespace, key.as_bytes());
        UniqueIds { id, root: Uuid::new_v5(&id, b"root") }
    }

    /// Launches the message unless it is in the database. Any worker may claim its runs.
    pub(crate) fn again(&mut self) {
        self.is_unique = true;
        self.local_runs.clear();
    }

    pub(crate) fn with(mut self, context: Context) -> Self {
        self.due = context.not_before();
        self.deadlines = context.give_up_at(Direction::Forward);
        self.bytes += context.bytes();
        self.context = context;
        self
    }

    /// Whether its runs are found by fields.
    pub(crate) fn is_found_by(&self) -> bool {
        !self.found_by.is_empty()
    }

    /// Whether the launch sets a timer: a due time or a deadline.
    pub(crate) fn has_timer(&self) -> bool {
        self.due.is_some() || !self.deadlines.is_empty()
    }

    /// Whether it may be there already or be refused, of which only `scoop.launch` and `message_insert_claiming.sql`
    /// know.
    pub(crate) fn is_conditional(&self) -> bool {
        self.is_unique || self.required.is_some()
    }

    /// Whether it is launched unconditionally, and has no timer.
    pub(super) fn is_simple(&self) -> bool {
        !self.is_conditional() && !self.has_timer()
    }

    /// The deadline of its runs.
    pub(super) fn give_up_at(&self) -> Option<OffsetDateTime> {
        self.deadlines.iter().min().copied()
    }

    /// Claims the run of this handler with the launch. Returns the key of that claim.
    pub(crate) fn reserve_local_run(&mut self, handler: &str) -> ClaimKey {
        let run = ids::now_v7();
        self.local_runs.insert(handler.to_owned(), run);
        ClaimKey { root: self.root, id: run, epoch: 1 }
    }

    /// The run that was claimed when this was launched, as any claim would have it. `worker` is the
    /// identifier in events.
    pub(crate) fn claimed(&self, key: ClaimKey, handler: String, worker: &str) -> ClaimedRun {
        let source = format!("{handler}[{worker}]");
        let mut begun = Run::new(Lineage::root(self.root).child(key.id), self.id, source);
        begun.context = self.context.clone();
        ClaimedRun {
            key,
            topic: self.topic.clone().into_owned(),
            handler,
            payload: self.payload.clone(),
            attempts: 0,
            retries: 0,
            tried_under: vec![],
            newest_failure: None,
            flags: HierarchyFlags { has_parent: false, in_rollback: false },
            // by the clock of this process
            began_at: OffsetDateTime::now_utc(),
            overdue: false,
            definition: None,
            reserved_for: 0,
            limit_key: None,
            signalled_by: None,
            wait: None,
            run: begun,
        }
    }
}

/// What became of a launch.
#[derive(Debug)]
pub(crate) struct LaunchResult {
    /// How many of the messages were not there before.
    pub(crate) launched: i64,
    /// The handlers with new work.
    pub(crate) handlers: Vec<String>,
    pub(crate) claimed: Vec<Uuid>,
}

impl LaunchResult {
    /// The starts of these messages if none of their runs has started in this process.
    pub(crate) fn started_as(&self, messages: &[NewMessage], attempt: Attempt) -> StartedAs {
        match attempt {
            _ if messages.len() != 1 || self.launched > 0 => StartedAs::Other,
            Attempt::First => StartedAs::Earlier,
            Attempt::Repeat => StartedAs::Found,
        }
    }
}

/// How many bytes of payloads one statement has, about; more only if a single message has more. The conditional
/// launches keep them in memory within the usual `work_mem`.
pub(super) const PAYLOADS_BYTES_MAX: usize = 1024 * 1024;

/// Whether the messages are launched by several statements.
pub(crate) fn is_bulky(messages: &[NewMessage]) -> bool {
    messages.len() > 1 && messages.iter().map(|message| message.bytes).sum::<usize>() > PAYLOADS_BYTES_MAX
}

/// The items in parts of bounded size, at least one in each.
pub(crate) fn parts<T>(items: &[T], bytes: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut sum = 0;
    items.chunk_by(move |item, next| {
        sum += bytes(item);
        let fits = sum + bytes(next) <= PAYLOADS_BYTES_MAX;
        sum = if fits { sum } else { 0 };
        fits
    })
}

pub(crate) fn prepare<M: Message>(message: &M, limit: usize) -> Result<NewMessage, RuntimeError> {
    let what = || format!("a message for topic `{}`", M::TOPIC);
    let (payload, bytes) = measured(of_message(message)?, limit, what)?;
    let found_by = found_by(M::TOPIC, M::FIND_BY, &payload)?;
    let mut launched = NewMessage::new(M::TOPIC, payload, bytes);
    launched.found_by = found_by;
    launched.required = M::REQUIRES_HANDLER.then(std::any::type_name::<M>);
    Ok(launched)
}

/// The registered fields of a topic, in their order.
pub(crate) type FindFields = Arc<[(String, FindKind)]>;

/// By what the runs of a message are found: the values of these fields.
pub(crate) fn found_by(
    topic: &str,
    fields: &[FindField],
    payload: &Value,
) -> Result<Vec<FoundBy>, RuntimeError> {
    let found = scoop_core::found_by(fields.iter().map(|field| (field.name, field.kind)), payload);
    found.map_err(|unfit| unfindable(topic, unfit))
}

/// The error for a value by which no run can be found.
fn unfindable(topic: &str, UnfitField { field, why }: UnfitField) -> RuntimeError {
    RuntimeError::from(ErrorKind::FindBy { topic: topic.to_owned(), field, why })
}

/// The same of a message without a type: the values of the fields that are registered for its topic.
pub(crate) fn found_by_registered(
    topic: &str,
    fields: &FindFields,
    payload: &Value,
) -> Result<Vec<FoundBy>, RuntimeError> {
    let found = scoop_core::found_by(fields.iter().map(|(name, kind)| (&**name, *kind)), payload);
    found.map_err(|unfit| unfindable(topic, unfit))
}

/// As [`prepare`], for a message without a type, whose topic is checked. Its runs are found by these fields.
pub(crate) fn prepare_untyped(
    topic: String,
    payload: Value,
    limit: usize,
    fields: &FindFields,
) -> Result<NewMessage, RuntimeError> {
    let (payload, bytes) = measured(payload, limit, || format!("a message for topic `{topic}`"))?;
    let found_by = found_by_registered(&topic, fields, &payload)?;
    Ok(NewMessage { found_by, ..NewMessage::new(topic, payload, bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_large_as_they_may_be() {
        let lengths = |items: &[usize]| parts(items, |bytes| *bytes).map(<[_]>::len).collect::<Vec<_>>();
        let all = PAYLOADS_BYTES_MAX;
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&[all / 2, all / 2, 1, all - 1, all]), [2, 2, 1]);
        assert_eq!(lengths(&[2 * all, 1, 2 * all, 2 * all]), [1, 1, 1, 1]);
    }
}
