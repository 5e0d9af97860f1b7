//! Sagas that join several messages: the struct of their messages, and the collector of each topic.
//!
//! A collector is a handler of one of these topics. It records the message as a member of the set of its key; the rest is
//! in [`crate::store::join`]. Its first step does nothing but to be compensated: the second one may have recorded the
//! member although its result is lost or rejected.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{BoxFuture, FutureExt};
use scoop_core::{Definition, Error, Failure, Message, Next, Result, StepDefinition, refused_key};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::command::CommandFunctions;
use super::scope::Awaited;
use super::shape::StoredType;
use super::{DecodeError, HandledMessage, Handler, MessageType, RetryTarget, StepEnd, defaults};
use crate::model::limits::Limits;
use crate::model::subscribed_saga::MessageSettings;
use crate::store::JoinSpec;
use crate::util::payload::{has_number_beyond, storable};
use crate::{Retry, Scope};

/// The messages that a saga joins, as one struct. `#[saga]` implements it.
pub trait Joined: Sized + Send + Sync + 'static {
    /// The topic of the messages that are launched for sets.
    const TOPIC: &'static str;

    /// The messages.
    const MEMBERS: &'static [JoinMember];

    /// Takes the messages of a complete set.
    ///
    /// # Errors
    ///
    /// If a payload does not fit its type.
    fn join(set: &mut JoinedSet) -> serde_json::Result<Self>;
}

/// The key of one of the messages that the struct joins.
pub trait JoinedBy<M> {
    /// The key as text.
    fn key(of: &M) -> String;
}

/// A type of messages that a saga joins.
pub struct JoinMember {
    pub(super) topic: &'static str,
    key: fn(&Value) -> serde_json::Result<String>,
    pub(crate) shape: fn() -> StoredType,
    pub(super) message_type: fn() -> MessageType,
    settings: fn() -> MessageSettings,
}

impl JoinMember {
    /// The message type `M`.
    pub const fn of<T: JoinedBy<M>, M: Message>() -> Self {
        Self {
            topic: M::TOPIC,
            key: |payload| M::read_stored(payload).map(|message| T::key(&message)),
            shape: || StoredType::of::<M>(format!("message {}", M::TOPIC)),
            message_type: || (TypeId::of::<M>(), std::any::type_name::<M>()),
            settings: MessageSettings::of::<M>,
        }
    }
}

/// How a saga joins messages.
pub struct Join {
    topic: &'static str,
    members: &'static [JoinMember],
    within: Option<Duration>,
}

impl Join {
    /// The join of these messages, which have to be complete within that time.
    pub const fn of<T: Joined>(within: Option<Duration>) -> Self {
        Self { topic: T::TOPIC, members: T::MEMBERS, within }
    }
}

/// The payload of the message that is launched for a set. Missing members have no payload: their time is over.
#[derive(Deserialize)]
pub struct JoinedSet {
    saga: String,
    key: String,
    members: Map<String, Value>,
    #[serde(default)]
    missing: Vec<String>,
}

impl JoinedSet {
    /// Takes the message of type `M`.
    ///
    /// # Errors
    ///
    /// If its payload does not fit the type.
    pub fn take<M: Message>(&mut self) -> serde_json::Result<M> {
        M::read_stored(&self.members.remove(M::TOPIC).unwrap_or_default())
    }
}

impl<T: Joined> HandledMessage<T> {
    /// The message that is launched for a set.
    pub const fn joined() -> Self {
        Self {
            topic: T::TOPIC,
            decode: |payload| {
                let mut set = JoinedSet::deserialize(payload)?;
                if !set.missing.is_empty() {
                    let JoinedSet { saga, key, missing, .. } = set;
                    return Err(DecodeError::Incomplete(scoop_core::JoinIncomplete::new(saga, key, missing)));
                }
                Ok(T::join(&mut set)?)
            },
            stored_types: || T::MEMBERS.iter().map(|member| (member.shape)()).collect(),
            message_type: || (TypeId::of::<T>(), std::any::type_name::<T>()),
            settings: || joined_settings(T::MEMBERS),
        }
    }
}

/// The settings of a set: the longest times for which one of these types has hierarchies kept, and the redacted fields of all.
fn joined_settings(members: &[JoinMember]) -> MessageSettings {
    let all = members.iter().map(|member| (member.settings)());
    all.fold(MessageSettings::default(), |mut set, member| {
        set.retention.committed = set.retention.committed.max(member.retention.committed);
        set.retention.rolled_back = set.retention.rolled_back.max(member.retention.rolled_back);
        set.redacted.extend(member.redacted);
        set
    })
}

/// Whether no member before the one at `index` has its topic.
pub const fn has_own_member_topic<T: Joined>(index: usize) -> bool {
    let mut earlier = 0;
    while earlier < index {
        if is_same(T::MEMBERS[earlier].topic.as_bytes(), T::MEMBERS[index].topic.as_bytes()) {
            return false;
        }
        earlier += 1;
    }
    true
}

/// What `by` names: a field, or what a function returns.
#[diagnostic::on_unimplemented(
    message = "a key is stored as text, and `{Self}` has none",
    label = "cannot be a key",
    note = "let `by` name a field that implements `Display`, such as a number, a text or a `Uuid`, or a function that \
            returns a text of your own: `message.customer.name.clone()`"
)]
pub trait KeyText: ToString {}

#[diagnostic::do_not_recommend]
impl<K: ToString + ?Sized> KeyText for K {}

/// The key of a message, as text.
pub fn key_text<K: KeyText + ?Sized>(key: &K) -> String {
    key.to_string()
}

/// Requires that two keys have one type.
pub fn same_key<K>(_: K, _: K) {}

/// The suffix of the name of a collector: that of its saga comes before it.
const COLLECTOR: &str = " (join)";

const PREPARE: usize = 0;

/// The largest number of a set: that of any message that a function of the schema launches.
const NUMBER_MAX: f64 = 1.7e308;

const STEPS: &[StepDefinition] =
    &[StepDefinition::new("prepare").compensated(), StepDefinition::new("record")];

pub(crate) struct Collector {
    members: &'static [JoinMember],
    spec: Arc<JoinSpec>,
}

impl Collector {
    #[cfg(feature = "testing")]
    pub(crate) fn stored_types(&self) -> Vec<StoredType> {
        self.members.iter().map(|member| (member.shape)()).collect()
    }

    pub(super) fn new(join: &Join, saga: &str) -> Self {
        let Join { topic, members, within } = *join;
        let topics = members.iter().map(|member| member.topic).collect();
        let spec = JoinSpec { saga: saga.to_owned(), topic, topics, within };
        Self { members, spec: Arc::new(spec) }
    }

    pub(super) fn spec(&self) -> Arc<JoinSpec> {
        self.spec.clone()
    }

    pub(super) fn settings(&self) -> impl Iterator<Item = MessageSettings> + use<> {
        self.members.iter().map(|member| (member.settings)())
    }
}

pub(super) fn collectors(join: &Join, saga: &str) -> impl Iterator<Item = (Definition, MessageType)> {
    join.members.iter().map(move |member| {
        let (saga, topic) = (collector_name(saga).into(), member.topic.into());
        (Definition { saga, topic, steps: STEPS.into() }, (member.message_type)())
    })
}

pub(crate) fn collector_name(saga: &str) -> String {
    format!("{saga}{COLLECTOR}")
}

/// The message of a collector.
struct Member {
    key: String,
    /// Why it cannot be part of a set, which is one message.
    unfit: Option<String>,
}

impl Handler for Collector {
    fn decode(&self, topic: &str, payload: &Value) -> Result<Box<dyn Any + Send + Sync>, DecodeError> {
        let member = self.members.iter().find(|member| member.topic == topic).unwrap_or(&self.members[0]);
        let key = (member.key)(payload)?;
        // A set has an object of members around each of them.
        let limit = usize::try_from(self.spec.member_bytes_max()).unwrap_or(usize::MAX);
        let what = || format!("the message on topic `{topic}` for saga `{}`", self.spec.saga);
        let unfit = storable(json!([[payload]]), limit, what).err().map(|error| error.to_string());
        let unfit = unfit.or_else(|| {
            has_number_beyond(payload, NUMBER_MAX)
                .then(|| format!("{} has a number beyond {NUMBER_MAX:e}; no set can hold it", what()))
        });
        Ok(Box::new(Member { key, unfit }))
    }

    fn types(&self) -> Vec<String> {
        self.members.iter().map(|member| (member.shape)().text()).collect()
    }

    fn timeout(&self, _: usize) -> Option<Duration> {
        None
    }

    fn retry(&self, _: usize, _: RetryTarget) -> Option<Retry> {
        None
    }

    fn sleep(&self, _: usize) -> Option<Duration> {
        None
    }

    fn decisions(&self) -> Option<CommandFunctions> {
        None
    }

    fn invoke<'a>(
        &'a self,
        step: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<StepEnd>> {
        async move {
            let Member { key, unfit } = member(message);
            if let Some(why) = refused_key(key) {
                return Err(Error::msg(format!("the key of the message {why}")).into_permanent());
            }
            if let Some(why) = unfit {
                return Err(Error::msg(why).into_permanent());
            }
            if step != PREPARE {
                scope.join(&self.spec, key).await?;
            }
            Ok(StepEnd::CONTINUE)
        }
        .boxed()
    }

    fn due<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<SystemTime>> {
        defaults::always_due()
    }

    fn awaits<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<Option<Awaited>>> {
        defaults::awaits_nothing()
    }

    fn within(&self, _: usize) -> Option<Duration> {
        None
    }

    fn limits(&self) -> Limits {
        Limits::NONE
    }

    fn limit_key(&self, _: &(dyn Any + Send + Sync)) -> Option<String> {
        None
    }

    fn finally<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
    ) -> BoxFuture<'a, Result<()>> {
        defaults::nothing()
    }

    fn compensate<'a>(
        &'a self,
        _: usize,
        scope: &'a mut Scope<'_>,
        message: &'a (dyn Any + Send + Sync),
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<()>> {
        async move { scope.withdraw(&self.spec, &member(message).key, failure).await }.boxed()
    }

    fn on_child_failure<'a>(
        &'a self,
        _: usize,
        _: &'a mut Scope<'_>,
        _: &'a (dyn Any + Send + Sync),
        failure: &'a Failure,
    ) -> BoxFuture<'a, Result<Option<Next>>> {
        defaults::unhandled(failure)
    }
}

fn member(message: &(dyn Any + Send + Sync)) -> &Member {
    message.downcast_ref().expect("the message was decoded by this handler")
}

pub(crate) const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}
